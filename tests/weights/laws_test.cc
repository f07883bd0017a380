// Laws over random weight programs: whatever build.h makes, in whatever box it is read,
// is what the oracle says, in exactly the room that was predicted.
#include <gtest/gtest.h>

#include <thread>

#include "tests/support/random_weights.h"
#include "weights/simplify.h"
#include "weights/text.h"

namespace twinforge {
namespace {

struct Tally {
  int64_t programs = 0;
  int64_t boxes = 0;
  int64_t with_scratch = 0;
};

// Every law that holds for one program, on `boxes` random boxes and the whole.
void CheckProgram(const RandomProgram& made, const NaiveTensors& sources, Random& random, int boxes,
                  bool bit_for_bit, Tally& tally) {
  const WeightPtr& w = made.program;
  ASSERT_EQ(w->dtype(), made.value.dtype) << Text(w);
  ASSERT_EQ(w->shape(), made.value.shape) << Text(w);
  EXPECT_EQ(Simplify(w), w) << "not a fixed point: " << Text(w);
  const auto difference = bit_for_bit ? BitDifference : Difference;
  ASSERT_EQ(difference(made.value, NaiveValue(w, sources)), "") << "simplification changed " << Text(w);
  const MemoryReader reader(sources);
  for (int i = 0; i <= boxes; ++i) {
    const Box box = i == 0 ? WholeBox(w->shape()) : RandomBox(random, w->shape());
    Scratch scratch;
    const NaiveTensor got = ReadBox(w, box, reader, scratch);
    ASSERT_EQ(difference(NaiveBox(made.value, box), got), "")
        << Text(w) << "\nbox " << ShapeText(box.start) << " + " << ShapeText(box.size);
    ASSERT_EQ(ScratchBytes(w, box), scratch.high_water()) << Text(w) << " " << ShapeText(box.size);
    tally.boxes += 1;
    tally.with_scratch += scratch.high_water() > 0;
  }
  tally.programs += 1;
}

Tally CheckMany(int programs, int boxes, uint64_t seed, const RandomOptions& options) {
  Random random(seed);
  Tally tally;
  for (int i = 0; i < programs; ++i) {
    NaiveTensors sources;
    const RandomProgram made = MakeRandomProgram(random, options, sources);
    CheckProgram(made, sources, random, boxes, options.only_moves, tally);
    if (testing::Test::HasFatalFailure() || testing::Test::HasNonfatalFailure()) {
      ADD_FAILURE() << "seed " << seed << ", program " << i;
      break;
    }
  }
  return tally;
}

TEST(Laws, MovingProgramsReadTheSameBits) {
  RandomOptions options;
  options.only_moves = true;
  options.verbs = 5;
  const Tally tally = CheckMany(4000, 12, 1, options);
  EXPECT_GT(tally.with_scratch, tally.boxes / 10);  // both the direct and the staged ways were walked
  EXPECT_LT(tally.with_scratch, tally.boxes * 9 / 10);
}

TEST(Laws, AllVerbsReadTheSameValues) {
  RandomOptions options;
  options.verbs = 5;
  CheckMany(4000, 12, 2, options);
}

// Axes so long that runs are read directly, blocks have tails and takes are not staged.
TEST(Laws, LongAxes) {
  RandomOptions options;
  options.long_axis = 20000;
  options.verbs = 3;
  options.only_moves = true;
  CheckMany(16, 4, 3, options);
  options.long_axis = 3000;
  options.only_moves = false;
  CheckMany(12, 3, 4, options);
}

TEST(Laws, TextReadsBackAsTheSameObject) {
  Random random(5);
  RandomOptions options;
  options.verbs = 5;
  for (int i = 0; i < 3000; ++i) {
    NaiveTensors sources;
    const WeightPtr w = MakeRandomProgram(random, options, sources).program;
    const absl::StatusOr<WeightPtr> again = ParseWeight(Text(w));
    ASSERT_TRUE(again.ok()) << again.status() << "\n" << Text(w);
    ASSERT_EQ(*again, w) << Text(w) << "\n" << Text(*again);
  }
}

// One program, two threads, each with its own scratch.
TEST(Laws, ReadersDoNotDisturbOneAnother) {
  Random random(6);
  RandomOptions options;
  options.verbs = 5;
  for (int i = 0; i < 100; ++i) {
    NaiveTensors sources;
    const RandomProgram made = MakeRandomProgram(random, options, sources);
    const MemoryReader reader(sources);
    std::string found[2];
    const auto work = [&](int which) {
      Random own(which);
      Scratch scratch;  // reused from box to box
      for (int k = 0; k < 20 && found[which].empty(); ++k) {
        const Box box = RandomBox(own, made.value.shape);
        found[which] = Difference(NaiveBox(made.value, box), ReadBox(made.program, box, reader, scratch));
      }
    };
    std::thread one(work, 0);
    std::thread two(work, 1);
    one.join();
    two.join();
    ASSERT_EQ(found[0] + found[1], "") << Text(made.program);
  }
}

}  // namespace
}  // namespace twinforge
