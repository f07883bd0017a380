// Reading, case by case: what a read asks of the files, how much room it takes, how it fails.
#include <gtest/gtest.h>
#include <malloc.h>

#include "tests/support/random_weights.h"
#include "weights/build.h"
#include "weights/strided.h"
#include "weights/text.h"

namespace twinforge {
namespace {

NaiveTensor Counting(DType dtype, Shape shape) {
  NaiveTensor tensor(dtype, shape);
  for (int64_t i = 0; i < ElementCount(shape); ++i)
    FromDouble(dtype, static_cast<double>(i % 251), tensor.at(i));
  return tensor;
}

struct Outcome {
  int64_t calls;
  int64_t elements;
  int64_t scratch;
};

// Reads all of `w`, checks the value against the oracle, and says what it took.
Outcome ReadWhole(const WeightPtr& w, const NaiveTensors& sources) {
  const MemoryReader reader(sources);
  Scratch scratch;
  const NaiveTensor got = ReadBox(w, WholeBox(w->shape()), reader, scratch);
  EXPECT_EQ(Difference(NaiveValue(w, sources), got), "") << Text(w);
  EXPECT_EQ(ScratchBytes(w, WholeBox(w->shape())), scratch.high_water());
  return {reader.calls(), reader.elements(), scratch.high_water()};
}

class ReadCost : public testing::Test {
 protected:
  // 3 MiB of two-byte elements, more than one block; rows of 32 KiB.
  const NaiveTensors sources_ = {{"w", Counting(DType::kBF16, {96, 16384})},
                                 {"v", Counting(DType::kBF16, {96, 16384})}};
  const WeightPtr w_ = Source("w", DType::kBF16, {96, 16384});
  const WeightPtr v_ = Source("v", DType::kBF16, {96, 16384});
};

TEST_F(ReadCost, AnUntouchedTensorIsOneReadIntoItsPlace) {
  const Outcome outcome = ReadWhole(w_, sources_);
  EXPECT_EQ(outcome.calls, 1);
  EXPECT_EQ(outcome.scratch, 0);
}

TEST_F(ReadCost, PaddedRowsAreOneRead) {
  const Outcome outcome = ReadWhole(Pad(w_, 0, 32), sources_);
  EXPECT_EQ(outcome.calls, 1);
  EXPECT_EQ(outcome.scratch, 0);
}

TEST_F(ReadCost, LongRowsAreReadIntoWiderRows) {
  const Outcome outcome = ReadWhole(Concat(1, {w_, v_}), sources_);
  EXPECT_EQ(outcome.calls, 2 * 96);
  EXPECT_EQ(outcome.scratch, 0);
}

// Notes how much memory the process has allocated while it is read.
class HeldReader : public TensorReader {
 public:
  explicit HeldReader(const NaiveTensors& sources) : reader_(sources), before_(Held()) {}
  absl::Status ReadElements(const Weight& source, int64_t first, int64_t count,
                            std::byte* out) const override {
    most_ = std::max(most_, Held() - before_);
    return reader_.ReadElements(source, first, count, out);
  }
  int64_t most() const { return most_; }

 private:
  static int64_t Held() {
    const struct mallinfo2 info = mallinfo2();
    return static_cast<int64_t>(info.uordblks + info.hblkhd);
  }
  MemoryReader reader_;
  int64_t before_;
  mutable int64_t most_ = 0;
};

// What is held is what the worst read needs, also where cheaper reads went before: the operands of a concat.
TEST_F(ReadCost, WhatIsHeldIsTheWorstReadAndNotTheSumOfTwo) {
  const NaiveTensors sources = {{"a", Counting(DType::kBF16, {512, 512})},
                                {"b", Counting(DType::kF32, {1024, 512})}};
  const WeightPtr first = Transpose(Source("a", DType::kBF16, {512, 512}), {1, 0});
  const WeightPtr second = Cast(Transpose(Source("b", DType::kF32, {1024, 512}), {1, 0}), DType::kBF16);
  const WeightPtr w = Concat(1, {first, second});
  const Box boxes[] = {{{0, 0}, {512, 512}}, {{0, 512}, {512, 1024}}};
  ASSERT_GT(ScratchBytes(w, boxes[0]), 1 << 18);
  ASSERT_GT(ScratchBytes(w, boxes[1]), ScratchBytes(w, boxes[0]));
  std::vector<std::byte> out(512 * 1024 * 2);
  Scratch scratch;
  const HeldReader reader(sources);
  for (const Box& box : boxes) ASSERT_TRUE(Read(w, box, reader, out.data(), scratch).ok());
  EXPECT_LE(reader.most(), ScratchBytes(w, boxes[1]) + (1 << 16));
}

TEST_F(ReadCost, PaddedHeadsAreOneReadEach) {
  std::vector<twinforge::Run> runs;
  for (int64_t head = 0; head < 8; ++head) {
    runs.push_back({head * 12, 1, 12});
    runs.push_back({twinforge::Run::kFill, 0, 4});
  }
  const Outcome outcome = ReadWhole(Take(w_, 0, IndexMap(runs)), sources_);
  EXPECT_EQ(outcome.calls, 8);
  EXPECT_EQ(outcome.scratch, 0);
}

TEST_F(ReadCost, ATransposeIsReadOnceInABlock) {
  const Outcome outcome = ReadWhole(Transpose(w_, {1, 0}), sources_);
  EXPECT_EQ(outcome.elements, 96 * 16384);
  EXPECT_LE(outcome.scratch, 2 << 20);
}

TEST_F(ReadCost, ShortRunsAreReadInBlocksNotOneByOne) {
  std::vector<twinforge::Run> runs;  // on the inner axis: 256 pieces of 64 elements, each padded
  for (int64_t head = 0; head < 256; ++head) {
    runs.push_back({head * 64, 1, 64});
    runs.push_back({twinforge::Run::kFill, 0, 64});
  }
  const Outcome outcome = ReadWhole(Take(w_, 1, IndexMap(runs)), sources_);
  EXPECT_LE(outcome.calls, 16);
  EXPECT_LE(outcome.scratch, 2 << 20);
}

TEST_F(ReadCost, ASliceOfColumnsDoesNotReadTheRest) {
  const Outcome outcome = ReadWhole(Slice(w_, 1, 100, 64), sources_);
  EXPECT_EQ(outcome.elements, 96 * 64);
}

TEST_F(ReadCost, ACastWorksInBlocks) {
  const Outcome outcome = ReadWhole(Cast(w_, DType::kF32), sources_);
  EXPECT_EQ(outcome.elements, 96 * 16384);
  EXPECT_LE(outcome.scratch, 2 << 20);
}

TEST_F(ReadCost, ASmallOperandIsReadOnceForAllBlocks) {
  const NaiveTensors sources = {
      {"w", sources_.at("w")}, {"v", sources_.at("v")}, {"r", Counting(DType::kF32, {96, 1})}};
  const Outcome rows = ReadWhole(Map(MapFn::kAdd, w_, Source("r", DType::kF32, {96, 1})), sources);
  EXPECT_EQ(rows.elements, 96 * 16384 + 96);
  const Outcome all = ReadWhole(Map(MapFn::kAdd, w_, v_), sources);  // too large: block by block
  EXPECT_EQ(all.elements, 2 * 96 * 16384);
  EXPECT_LE(all.scratch, 2 << 20);
}

TEST_F(ReadCost, RoomDoesNotGrowWithTheTensor) {
  const WeightPtr small = Scale(Transpose(Source("x", DType::kF32, {1 << 12, 1 << 12}), {1, 0}), 0.5);
  const WeightPtr large = Scale(Transpose(Source("x", DType::kF32, {1 << 18, 1 << 14}), {1, 0}), 0.5);
  EXPECT_EQ(ScratchBytes(small, WholeBox(small->shape())), ScratchBytes(large, {{0, 0}, {4096, 4096}}));
  EXPECT_LE(ScratchBytes(large, WholeBox(large->shape())), 32 << 20);
}

TEST(ReadStats, PreparedOnceAndThenNotReadAgain) {
  const NaiveTensors sources = {{"w", Counting(DType::kF32, {64, 300})}};
  const WeightPtr w = Source("w", DType::kF32, {64, 300});
  const WeightPtr scaled = Map(MapFn::kDiv, w, Stat(StatKind::kAbsMax, w, {0, 1}));
  const MemoryReader reader(sources);
  Scratch scratch;
  StatCache cache;
  ASSERT_TRUE(PrepareStats(scaled, reader, scratch, cache).ok());
  const int64_t before = reader.elements();
  EXPECT_EQ(before, 64 * 300);
  NaiveTensor got(DType::kF32, {2, 300});
  const Box box = {{3, 0}, {2, 300}};
  Scratch fresh;
  ASSERT_TRUE(Read(scaled, box, reader, got.data.data(), fresh, &cache).ok());
  EXPECT_EQ(Difference(NaiveBox(NaiveValue(scaled, sources), box), got), "");
  EXPECT_EQ(reader.elements() - before, 2 * 300);
  EXPECT_EQ(ScratchBytes(scaled, box, &cache), fresh.high_water());
}

// Products larger than one block in each of the three directions.
TEST(ReadContract, BlocksAddUp) {
  const NaiveTensors sources = {{"a", Counting(DType::kF32, {3, 600})},
                                {"b", Counting(DType::kF32, {600, 530})},
                                {"c", Counting(DType::kF32, {270, 3})}};
  const WeightPtr a = Source("a", DType::kF32, {3, 600});
  const WeightPtr b = Source("b", DType::kF32, {600, 530});
  const WeightPtr c = Source("c", DType::kF32, {270, 3});
  ReadWhole(Contract(a, b), sources);
  ReadWhole(Contract(c, Slice(a, 1, 0, 7)), sources);
}

// A sum that lies just above the middle between two bf16: rounding it to f32 first would
// put it on the middle, and then down to even.
TEST(ReadMap, RoundsOnce) {
  NaiveTensor one(DType::kBF16, {1});
  FromDouble(DType::kBF16, 1, one.at(0));
  const NaiveTensors sources = {{"one", one}};
  for (double term : {0x1p-8 + 0x1p-40, 0x1p-8, 0x1p-8 - 0x1p-40, 3 * 0x1p-8 - 0x1p-40}) {
    ReadWhole(AddConstant(Source("one", DType::kBF16, {1}), term), sources);
  }
}

TEST(ReadFails, WithTheReadersStatus) {
  const NaiveTensors sources = {{"here", Counting(DType::kF32, {8, 8})}};
  const WeightPtr here = Source("here", DType::kF32, {8, 8});
  const WeightPtr gone = Source("gone", DType::kF32, {8, 8});
  const MemoryReader reader(sources);
  std::byte out[4096];
  for (const WeightPtr& w :
       {gone, Concat(0, {here, gone}), Transpose(gone, {1, 0}), Cast(gone, DType::kBF16),
        Map(MapFn::kAdd, here, gone), Contract(here, gone), Stat(StatKind::kMax, gone, {0}),
        GroupKeepLargest(gone, 1, 4, 2), Take(gone, 1, IndexMap::Slice(7, 4, -2))}) {
    Scratch scratch;
    EXPECT_EQ(Read(w, WholeBox(w->shape()), reader, out, scratch).code(), absl::StatusCode::kNotFound)
        << Text(w);
    scratch.Push(1);  // everything that was pushed on the way was popped
    EXPECT_LE(ScratchBytes(w, WholeBox(w->shape())), scratch.high_water());
    scratch.Pop();
  }
}

TEST(ReadEmpty, BoxesOfNothingTouchNothing) {
  const NaiveTensors none;
  const MemoryReader reader(none);
  Scratch scratch;
  const WeightPtr w = Transpose(Source("gone", DType::kF32, {8, 8}), {1, 0});
  EXPECT_TRUE(Read(w, {{3, 2}, {0, 4}}, reader, nullptr, scratch).ok());
  EXPECT_EQ(scratch.high_water(), 0);
}

TEST(Scratch, IsAlignedAndCountsTheWorstMoment) {
  Scratch scratch;
  const std::byte* first = nullptr;
  for (int read = 0; read < 3; ++read) {
    std::byte* a = scratch.Push(100);
    std::byte* b = scratch.Push(28);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 64, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(b) % 64, 0u);
    std::fill_n(a, 100, std::byte{1});
    std::fill_n(b, 28, std::byte{2});
    EXPECT_EQ(a[99], std::byte{1});
    if (read == 1) first = a;
    if (read == 2) {
      EXPECT_EQ(a, first);  // the second read knew how much the first one needed
    }
    scratch.Pop();
    scratch.Pop();
  }
  EXPECT_EQ(scratch.high_water(), 128);
}

TEST(Scratch, ServesWhatWasReserved) {
  Scratch scratch;
  scratch.Reserve(1000);
  const std::byte* a = scratch.Push(500);
  const std::byte* b = scratch.Push(0);
  const std::byte* c = scratch.Push(500);
  EXPECT_EQ(b, a + 512);
  EXPECT_EQ(c, b);  // nothing needs no room
  for (int i = 0; i < 3; ++i) scratch.Pop();
  EXPECT_EQ(scratch.high_water(), 1000);
}

// One copy between random strides, judged element by element.
void CheckCopy(Random& random, const std::vector<int64_t>& size, int64_t bytes) {
  const int64_t rank = static_cast<int64_t>(size.size());
  std::vector<int64_t> perm;
  for (int64_t i = 0; i < rank; ++i) perm.push_back(i);
  const auto strides = [&](int64_t& extent) {  // dense in a random order of axes, with room between
    std::shuffle(perm.begin(), perm.end(), random);
    std::vector<int64_t> result(rank);
    extent = Pick(random, 0, 2) == 0 ? 2 : 1;
    for (int64_t axis : perm) {
      result[axis] = extent;
      extent *= size[axis] + Pick(random, 0, 1);
    }
    return result;
  };
  int64_t from_extent, to_extent;
  const std::vector<int64_t> from = strides(from_extent);
  std::vector<int64_t> to = strides(to_extent);
  std::vector<std::byte> source(from_extent * bytes), got(to_extent * bytes), want(to_extent * bytes);
  for (std::byte& b : source) b = static_cast<std::byte>(random());
  int64_t origin = 0;  // the last axis backwards, now and then
  if (Pick(random, 0, 3) == 0) {
    origin = (size[rank - 1] - 1) * to[rank - 1];
    to[rank - 1] = -to[rank - 1];
  }
  CopyStrided(size, source.data(), from, got.data() + origin * bytes, to, bytes);
  for (int64_t i = 0; i < ElementCount(size); ++i) {
    int64_t left = i, a = 0, b = origin;
    for (int64_t k = rank - 1; k >= 0; --k) {
      a += left % size[k] * from[k];
      b += left % size[k] * to[k];
      left /= size[k];
    }
    std::copy_n(source.data() + a * bytes, bytes, want.data() + b * bytes);
  }
  ASSERT_TRUE(got == want) << ShapeText(size) << " of " << bytes << " bytes, " << ShapeText(from) << " -> "
                           << ShapeText(to);
}

// Every pairing of strides that the kernels special-case, in every element width: tiles
// with tails, reversed axes, planes so large that they are streamed.
TEST(Strided, CopiesAgreeWithOneByOne) {
  Random random(11);
  for (int trial = 0; trial < 2000; ++trial) {
    const int64_t rank = Pick(random, 1, 3);
    std::vector<int64_t> size;
    for (int64_t i = 0; i < rank; ++i) size.push_back(Pick(random, 1, rank == 2 ? 90 : 20));
    CheckCopy(random, size, int64_t{1} << Pick(random, 0, 3));
    if (HasFatalFailure()) return;
  }
  for (int trial = 0; trial < 32; ++trial) {
    CheckCopy(random, {Pick(random, 300, 700), Pick(random, 300, 700)}, int64_t{1} << trial % 4);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace twinforge
