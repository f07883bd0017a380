// Every weight program of up to three verbs over a small alphabet, in every box.
#include <gtest/gtest.h>

#include "tests/support/naive_weights.h"
#include "tests/support/random_weights.h"
#include "weights/build.h"
#include "weights/text.h"

namespace twinforge {
namespace {

constexpr int64_t kMostElements = 24;

struct State {
  WeightPtr program;
  NaiveTensor value;
};

// The alphabet, applied to one program: every axis with every map, every rotation and
// exchange of axes, every factorisation into at most three, joins with itself.
std::vector<State> Successors(const State& x) {
  const Shape& shape = x.value.shape;
  const int64_t rank = static_cast<int64_t>(shape.size());
  std::vector<State> next;
  const auto add = [&](WeightPtr w, NaiveTensor value) {
    if (value.data.size() <= kMostElements * 2 && !value.data.empty())
      next.push_back({std::move(w), std::move(value)});
  };
  for (int64_t axis = 0; axis < rank; ++axis) {
    const int64_t n = shape[axis];
    std::vector<IndexMap> maps = {
        IndexMap({{0, 1, n}, {Run::kFill, 0, 1}}),        // pad at the end
        IndexMap({{n - 1, -1, n}}),                       // reverse
        IndexMap({{0, 2, (n + 1) / 2}, {1, 2, n / 2}}),   // even ones, then odd ones
        IndexMap({{n / 2, 1, n - n / 2}}),                // the second half
        IndexMap({{0, 1, 1}, {0, 1, 1}, {n - 1, 1, 1}}),  // repeats
        IndexMap({{Run::kFill, 0, 1}, {0, 1, n / 2}, {Run::kFill, 0, 1}, {n / 2, 1, n - n / 2}}),
    };
    for (const IndexMap& map : maps) add(Take(x.program, axis, map, 1), NaiveTake(x.value, axis, map, 1));
    add(Concat(axis, {x.program, x.program}), NaiveConcat(axis, {x.value, x.value}));
  }
  std::vector<int64_t> perm;
  for (int64_t i = 0; i < rank; ++i) perm.push_back((i + 1) % rank);
  if (rank > 1) add(Transpose(x.program, perm), NaiveTranspose(x.value, perm));
  if (rank > 2) add(Transpose(x.program, {0, 2, 1}), NaiveTranspose(x.value, {0, 2, 1}));
  const int64_t count = ElementCount(shape);
  for (int64_t a = 1; a <= count; ++a) {
    if (count % a != 0) continue;
    add(Reshape(x.program, {a, count / a}), NaiveReshape(x.value, {a, count / a}));
    if (a == 2 && count % 4 == 0)
      add(Reshape(x.program, {2, count / 4, 2}), NaiveReshape(x.value, {2, count / 4, 2}));
  }
  return next;
}

class Exhaustive {
 public:
  explicit Exhaustive(NaiveTensors sources) : sources_(std::move(sources)), reader_(sources_) {}

  void Explore(const State& x, int verbs) {
    Judge(x);
    if (verbs == 0 || testing::Test::HasFatalFailure()) return;
    for (const State& next : Successors(x)) {
      if (next.value.shape.size() > 3) continue;
      Explore(next, verbs - 1);
    }
  }

  int64_t programs() const { return programs_; }
  int64_t boxes() const { return boxes_; }

 private:
  void Judge(const State& x) {
    ++programs_;
    ASSERT_EQ(x.program->shape(), x.value.shape) << Text(x.program);
    Box box = {std::vector<int64_t>(x.value.shape.size()), std::vector<int64_t>(x.value.shape.size())};
    JudgeBoxes(x, 0, box);
  }

  void JudgeBoxes(const State& x, size_t axis, Box& box) {
    if (axis < x.value.shape.size()) {
      for (box.start[axis] = 0; box.start[axis] < x.value.shape[axis]; ++box.start[axis]) {
        for (box.size[axis] = 1; box.start[axis] + box.size[axis] <= x.value.shape[axis]; ++box.size[axis]) {
          JudgeBoxes(x, axis + 1, box);
        }
      }
      return;
    }
    ++boxes_;
    std::byte got[2 * kMostElements];
    ASSERT_TRUE(Read(x.program, box, reader_, got, scratch_).ok());
    // The box by hand: three axes at most, missing ones in front.
    int64_t start[3] = {0, 0, 0}, size[3] = {1, 1, 1}, extent[3] = {1, 1, 1};
    const size_t lead = 3 - box.size.size();
    for (size_t i = 0; i < box.size.size(); ++i) {
      start[lead + i] = box.start[i];
      size[lead + i] = box.size[i];
      extent[lead + i] = x.value.shape[i];
    }
    int64_t at = 0;
    for (int64_t i = 0; i < size[0]; ++i) {
      for (int64_t j = 0; j < size[1]; ++j) {
        for (int64_t k = 0; k < size[2]; ++k, ++at) {
          const int64_t from = ((start[0] + i) * extent[1] + start[1] + j) * extent[2] + start[2] + k;
          ASSERT_TRUE(std::equal(got + 2 * at, got + 2 * at + 2, x.value.at(from)))
              << Text(x.program) << " box " << ShapeText(box.start) << " + " << ShapeText(box.size);
        }
      }
    }
  }

  NaiveTensors sources_;
  MemoryReader reader_;
  Scratch scratch_;
  int64_t programs_ = 0;
  int64_t boxes_ = 0;
};

TEST(Exhaustive, ThreeVerbs) {
  int64_t programs = 0;
  int64_t boxes = 0;
  for (const Shape& shape : {Shape{6}, Shape{3, 2}, Shape{2, 5}, Shape{2, 3, 2}}) {
    NaiveTensor stored(DType::kU16, shape);
    for (int64_t i = 0; i < ElementCount(shape); ++i) FromDouble(DType::kU16, 1000.0 + i, stored.at(i));
    Exhaustive all({{"s", stored}});
    all.Explore({Source("s", DType::kU16, shape), stored}, 3);
    programs += all.programs();
    boxes += all.boxes();
  }
  RecordProperty("programs", std::to_string(programs));
  RecordProperty("boxes", std::to_string(boxes));
  EXPECT_GT(programs, 10000);
  EXPECT_GT(boxes, 300000);
}

}  // namespace
}  // namespace twinforge
