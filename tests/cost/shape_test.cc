#include "cost/shape.h"

#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace twinforge {
namespace {

constexpr ShapeRule kV5e = {.edge = 128, .units = 4, .sublanes = 8};
constexpr ShapeRule kV6e = {.edge = 256, .units = 2, .sublanes = 8};
constexpr ShapeRule kH100 = {.tile_m = 8, .tile_n = 8, .tile_k_bits = 128};

TEST(Systolic, ExposedPreloadEqualsScaleSim) {
  // Cycles that SCALE-Sim printed for its weight-stationary array of 32 x 32.
  EXPECT_EQ(ExposedPreloadCycles(128, 512, 512, 32, 32).value(), 56832);
  EXPECT_EQ(ExposedPreloadCycles(1024, 1024, 1024, 32, 32).value(), 1144832);
}

TEST(Systolic, FoldsBothDims) {
  // 128 x 512 x 512 on 128 x 128: 4 x 4 folds of 128 rows.
  EXPECT_EQ(SystolicRows({.m = 128, .k = 512, .n = 512}, kV5e).value(), 16 * 128);
  EXPECT_EQ(SystolicRows({.m = 128, .k = 513, .n = 512}, kV5e).value(), 5 * 4 * 128);
  EXPECT_EQ(SystolicRows({.m = 1, .k = 128, .n = 128}, kV5e).value(), 8) << "one row costs a group of eight";
}

TEST(Systolic, KeepsTheBetterOperandStationary) {
  // [4096, 128] x [128, 1]: as a row of weights it would cost 4096 rows, turned round 32 folds of 8.
  EXPECT_EQ(SystolicRows({.m = 4096, .k = 128, .n = 1}, kV5e).value(), 32 * 8);
  EXPECT_EQ(SystolicRows({.m = 1, .k = 128, .n = 4096}, kV5e).value(), 32 * 8);
}

TEST(Systolic, SpreadsRowsOverUnits) {
  // Three groups of rows on two units: the fuller one has two, and both are held for as long.
  EXPECT_EQ(TileMacs({.m = 24, .k = 256, .n = 256}, kV6e).value(), 2 * 2 * 8 * 256 * 256);
  EXPECT_EQ(TileMacs({.m = 8192, .k = 8192, .n = 8192}, kV6e).value(), int64_t{8192} * 8192 * 8192);
}

TEST(Systolic, CountsPairsNotRectangles) {
  const Product scores = {
      .kind = Product::Kind::kScores, .m = 512, .k = 64, .n = 512, .pairs = 512 * 513 / 2};
  // ceil(131,328 / 128) rows, at half a contraction each.
  EXPECT_EQ(SystolicRows(scores, kV5e).value(), 1026);
  EXPECT_EQ(Macs(scores).value(), 64 * 131328);
  const Product mix = {.kind = Product::Kind::kMix, .m = 512, .k = 512, .n = 64, .pairs = 512 * 513 / 2};
  // Scores stationary: nine folds of 64 columns' rows; values stationary would idle half of the columns.
  EXPECT_EQ(SystolicRows(mix, kV5e).value(), 9 * 64);
}

TEST(TensorCore, RoundsToItsTile) {
  // One row takes eight.
  EXPECT_EQ(TileMacs({.m = 1, .k = 4096, .n = 4096}, kH100).value(), int64_t{8} * 4096 * 4096);
  EXPECT_EQ(TileMacs({.m = 17, .k = 17, .n = 9}, kH100).value(), 24 * 24 * 16);
  // 8-bit operands have twice the depth.
  EXPECT_EQ(TileMacs({.m = 16, .k = 17, .n = 8, .left = DType::kI8, .right = DType::kI8}, kH100).value(),
            16 * 32 * 8);
  EXPECT_EQ(TileMacs({.m = 16, .k = 33, .n = 8, .left = DType::kI8, .right = DType::kI8}, kH100).value(),
            16 * 48 * 8);
}

TEST(Tiles, NeverCostLessThanTheProduct) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int64_t> size(1, 700);
  for (int i = 0; i < 20000; ++i) {
    Product p = {.m = size(random), .k = size(random), .n = size(random), .count = size(random)};
    p.kind = static_cast<Product::Kind>(i % 3);
    const int64_t all = p.kind == Product::Kind::kMix ? p.m * p.k : p.m * p.n;
    p.pairs = std::uniform_int_distribution<int64_t>(1, all)(random);
    for (const ShapeRule& rule : {kV5e, kV6e, kH100}) {
      ASSERT_GE(TileMacs(p, rule).value(), Macs(p).value()) << p.m << " " << p.k << " " << p.n;
    }
    // A rectangle costs at least what its pairs alone do.
    Product dense = p;
    dense.kind = Product::Kind::kDense;
    if (p.kind == Product::Kind::kScores) {
      p.pairs = p.m * p.n;
      ASSERT_LE(SystolicRows(p, kV5e).value(), SystolicRows(dense, kV5e).value());
    }
  }
}

TEST(Overflow, IsRemembered) {
  const int64_t big = int64_t{1} << 40;
  EXPECT_FALSE(Macs({.m = big, .k = big, .n = 1}).ok());
  EXPECT_FALSE(TileMacs({.m = big, .k = big, .n = 1}, kV5e).ok());
  EXPECT_FALSE((Exact(big) * big + Exact(1)).ok());
  EXPECT_FALSE(PaddedBytes(DType::kF32, {big, big}).ok());
  EXPECT_TRUE((Exact(big) * 1024).ok());
}

int64_t Bits(absl::string_view dtype) {
  if (dtype == "f32") return 32;
  if (dtype == "bf16") return 16;
  return dtype == "int4" ? 4 : 8;
}

struct PadRow {
  std::string text;
  bool row_major = false;
  int64_t bits = 0;
  std::vector<int64_t> shape;
  int64_t padded = 0;
};

// generation,dtype,shape,mode,"{layout, with commas}" or nothing,padded_bytes,logical_bytes
std::vector<PadRow> ReadPadRows(const std::string& name) {
  std::ifstream file(std::string(TWINFORGE_SOURCE_DIR) + "/tests/cost/data/" + name);
  std::vector<PadRow> rows;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    const std::vector<std::string> f = absl::StrSplit(absl::StripAsciiWhitespace(line), ',');
    PadRow row = {.text = line, .row_major = f[3] == "rowmajor", .bits = Bits(f[1])};
    EXPECT_TRUE(row.row_major || f[3] == "hbm") << line;
    Exact elements = 1;
    for (absl::string_view extent : absl::StrSplit(f[2], 'x')) {
      EXPECT_TRUE(absl::SimpleAtoi(extent, &row.shape.emplace_back())) << line;
      elements = elements * row.shape.back();
    }
    int64_t logical = 0;
    EXPECT_TRUE(absl::SimpleAtoi(f[f.size() - 2], &row.padded)) << line;
    EXPECT_TRUE(absl::SimpleAtoi(f.back(), &logical)) << line;
    EXPECT_EQ((elements * row.bits / 8).value(), logical) << line;
    rows.push_back(row);
  }
  return rows;
}

// Arrays that the TPU compiler laid out, on five generations, in the layout that it chose itself or in the
// row-major one that the program fixed. pad_more.csv are arrays drawn at random (bench/compile_layers.py
// pad).
TEST(Padding, EqualsTheCompilers) {
  int chosen = 0;
  int fixed = 0;
  for (const char* name : {"pad.csv", "pad_more.csv"}) {
    for (const PadRow& row : ReadPadRows(name)) {
      const Exact bytes =
          row.row_major ? RowMajorBytes(row.bits, row.shape) : PaddedBytes(row.bits, row.shape);
      EXPECT_EQ(bytes.value(), row.padded) << row.text;
      ++(row.row_major ? fixed : chosen);
    }
  }
  EXPECT_EQ(chosen, 364 + 450);
  EXPECT_EQ(fixed, 136);
}

TEST(Padding, NeverPadsMoreThanRowMajor) {
  std::mt19937 random(11);
  std::uniform_int_distribution<int64_t> size(1, 300);
  for (int i = 0; i < 5000; ++i) {
    std::vector<int64_t> shape(1 + i % 4);
    for (int64_t& extent : shape) extent = size(random);
    for (const int64_t bits : {4, 8, 16, 32}) {
      ASSERT_LE(PaddedBytes(bits, shape).value(), RowMajorBytes(bits, shape).value());
    }
  }
}

TEST(Padding, IsCompactWhereAnOrderOfDimsAllows) {
  EXPECT_EQ(PaddedBytes(DType::kBF16, {1, 1024, 16, 80}).value(), 2621440);  // 80 on the sublanes
  EXPECT_EQ(PaddedBytes(DType::kBF16, {2880, 2880}).value(), 16957440);      // 2880 is 22.5 lanes either way
  EXPECT_EQ(PaddedBytes(DType::kF32, {80}).value(), 512);
  EXPECT_EQ(PaddedBytes(DType::kBF16, {768}).value(), 2048);         // the next power of two
  EXPECT_EQ(PaddedBytes(DType::kBF16, {3584}).value(), 8192);        // four tiles of 1,024
  EXPECT_EQ(RowMajorBytes(16, {1, 1024, 16, 80}).value(), 4194304);  // 80 along 128 lanes
}

}  // namespace
}  // namespace twinforge
