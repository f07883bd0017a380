#include "exporters/tiles.h"

#include <gtest/gtest.h>

#include "exporters/groups.h"
#include "tests/support/random_weights.h"
#include "weights/build.h"
#include "weights/codec.h"
#include "weights/read.h"

namespace twinforge {
namespace {

// Tiles in order are the tensor in row-major order, each a whole number of bytes, none above what it may
// cost.
void ExpectExact(const WeightPtr& w, const Tiling& tiling) {
  int64_t next = 0;
  for (int64_t tile = 0; tile < tiling.tiles; ++tile) {
    int64_t first;
    Box box = TileBox(w, tiling, tile, &first);
    EXPECT_EQ(first, next) << "tile " << tile;
    int64_t count = ElementCount(box.size);
    ASSERT_TRUE(FileBytes(w->dtype(), count).has_value()) << "tile " << tile << " ends within a byte";
    // Row-major and contiguous: whole below the axis, single above it.
    for (int64_t i = 0; i < w->rank(); ++i) {
      if (i < tiling.axis) {
        EXPECT_EQ(box.size[i], 1);
      }
      if (i > tiling.axis) {
        EXPECT_EQ(box.size[i], w->shape()[i]);
      }
      EXPECT_LE(box.start[i] + box.size[i], w->shape()[i]);
    }
    int64_t packed = PackingGranule(w->dtype()) > 1 ? count : 0;
    EXPECT_LE(count * ElementBytes(w->dtype()) + packed + ScratchBytes(w, box), tiling.cost);
    next += count;
  }
  EXPECT_EQ(next, w->element_count());
}

TEST(Tiles, CoverEveryTensorOnceInOrder) {
  Random random(7);
  NaiveTensors sources;
  for (int trial = 0; trial < 600; ++trial) {
    RandomProgram made = MakeRandomProgram(random, {.verbs = 4}, sources);
    if (!FileBytes(made.program->dtype(), made.program->element_count()).has_value()) continue;
    int64_t share = Pick(random, 1, 4000);
    Tiling tiling = Cut(made.program, share, Pick(random, 1, 2000));
    SCOPED_TRACE(trial);
    ExpectExact(made.program, tiling);
  }
}

// One small operand that has to be computed, among rows that are only copied, wherever it lies.
TEST(Tiles, ASmallOperandOfALongConcatIsReckonedWith) {
  const WeightPtr copied = Source("x", DType::kBF16, {30'000, 8});
  const WeightPtr computed = Cast(Transpose(Source("y", DType::kF32, {8, 3}), {1, 0}), DType::kBF16);
  for (const std::vector<WeightPtr>& operands :
       {std::vector<WeightPtr>{copied, computed, copied}, {copied, computed}, {computed, copied}}) {
    const WeightPtr w = Concat(0, operands);
    const Tiling tiling = Cut(w, 40, 16);
    ASSERT_GT(tiling.tiles, 4096 * 2) << "more than are looked at";
    ExpectExact(w, tiling);
  }
}

TEST(Tiles, FourBitRowsOfOddLengthAreCutInPairs) {
  WeightPtr w = Source("x", DType::kF4, {6, 5});
  Tiling tiling = Cut(w, 35, 8);
  EXPECT_EQ(tiling.rows % 2, 0);
  ExpectExact(w, tiling);
  ExpectExact(Source("y", DType::kF6E2M3, {4, 3, 5}), Cut(Source("y", DType::kF6E2M3, {4, 3, 5}), 1, 1));
}

TEST(Tiles, ACopyGetsNoMoreThanPreferred) {
  WeightPtr w = Source("x", DType::kBF16, {1000, 1000});
  Tiling tiling = Cut(w, 1 << 30, 100'000);
  EXPECT_EQ(tiling.rows, 50);
  EXPECT_FALSE(tiling.panels);
}

TEST(Tiles, ATransposeIsReadInOnePieceWhereItFits) {
  WeightPtr w = Transpose(Source("x", DType::kBF16, {1000, 1000}), {1, 0});
  Tiling whole = Cut(w, 1 << 30, 100'000);
  EXPECT_EQ(whole.tiles, 1);
  EXPECT_FALSE(whole.panels);
  Tiling panels = Cut(w, 1'000'000, 100'000);
  EXPECT_GT(panels.tiles, 1);
  EXPECT_TRUE(panels.panels);
  EXPECT_LE(panels.cost, 1'000'000);
  EXPECT_GT(panels.cost, 900'000) << "panels are as wide as memory allows";
}

TEST(Tiles, AStackOfTransposedMatricesIsCutByMatrix) {
  WeightPtr w = Transpose(Source("x", DType::kBF16, {8, 100, 100}), {0, 2, 1});
  Tiling tiling = Cut(w, 1 << 30, 20'000);
  EXPECT_EQ(tiling.axis, 0);
  EXPECT_EQ(tiling.rows, 1);
  EXPECT_FALSE(tiling.panels);
}

TEST(Groups, JoinSmallTensorsAndNeverLeaveAGap) {
  OutputFile file{.name = "f", .header = std::string(64, ' ')};
  int64_t offset = 0;
  auto add = [&](const char* name, WeightPtr w) {
    int64_t bytes = *FileBytes(w->dtype(), w->element_count());
    file.tensors.push_back({name, w, {}, offset, bytes});
    offset += bytes;
  };
  add("a", Source("a", DType::kF32, {10}));
  add("none", Source("none", DType::kF32, {0, 4}));
  add("b", Source("b", DType::kI8, {3}));
  add("odd", Source("odd", DType::kBF16, {8}));  // would lie misaligned behind b's three bytes
  add("large", Source("large", DType::kBF16, {100, 10}));
  add("c", Source("c", DType::kI8, {5}));
  file.bytes = 64 + offset;
  Groups groups = CutFiles({file}, 1 << 20, 400);
  int64_t next = 0;
  for (const Group& group : groups.groups) {
    EXPECT_EQ(group.offset, next);
    EXPECT_LE(group.bytes, 400);
    next += group.bytes;
  }
  EXPECT_EQ(next, file.bytes);
  EXPECT_EQ(groups.groups[1].last - groups.groups[1].first, 3) << "a, none and b are one group";
  EXPECT_EQ(groups.groups.size(), 1 + 1 + 1 + 5 + 1u);
}

}  // namespace
}  // namespace twinforge
