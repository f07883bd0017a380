// Rungs R2 and R3 of single products against the TPU compiler's own estimate, row by row of data/aot.csv.
//
// A bound is a least time, so no estimate may lie below it. Both sides count cycles of one device as the
// compiler sees it. Where a bound lies above all the same, one side is wrong about the chip: each such row is
// printed and pinned in data/aot_contradictions.txt with its reason.
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cost/chip.h"
#include "cost/shape.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace twinforge {
namespace {

// One device of the compiler. Bytes per cycle: published bandwidth over published clock; where no clock is
// published, the typical rate of the compiler's own estimates, which is no peak.
struct Device {
  std::string generation;
  ShapeRule shape;
  double bytes_per_cycle;
  bool clock_is_published;
  std::string chip;  // whose file says which types multiply
};

std::vector<Device> Devices() {
  return {
      {"v4", {.edge = 128, .units = 8, .sublanes = 8}, 1200e9 / 1050e6, true, "v4"},  // two cores as one
      {"v5e", {.edge = 128, .units = 4, .sublanes = 8}, 819e9 / 1500e6, true, "v5e"},
      {"v5p", {.edge = 128, .units = 8, .sublanes = 8}, 2765e9 / 1750e6, true, "v5p"},  // two cores as one
      {"v6e", {.edge = 256, .units = 2, .sublanes = 8}, 739, false, "v6e"},
      {"7x", {.edge = 256, .units = 2, .sublanes = 8}, 1092, false, "tpu7x"}};  // half a chip
}

struct Row {
  std::string generation, op, mode, shapes, dtype;
  Product product;
  int64_t cycles = 0;
  int64_t arg_bytes = 0;

  std::string Name() const { return absl::StrCat(generation, " ", op, " ", dtype, " ", shapes, " ", mode); }
};

int64_t Number(const std::string& text) {
  int64_t value = 0;
  EXPECT_TRUE(absl::SimpleAtoi(text, &value)) << text;
  return value;
}

// Products of two operands only: the table's other ops (attention, norms, gathers) are no single matrix
// product, and what a custom call (ragged_dot) costs the compiler does not say.
std::vector<Row> Products() {
  std::ifstream file(std::string(TWINFORGE_SOURCE_DIR) + "/tests/cost/data/aot.csv");
  std::vector<Row> rows;
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line, "generation,op,mode,shapes,dtype,M,K,N,B,est_cycles,arg_bytes");
  while (std::getline(file, line)) {
    const std::vector<std::string> f = absl::StrSplit(line, ',');
    if (f[1] != "matmul" && f[1] != "matmul_q" && f[1] != "bmm" && f[1] != "lm_head" &&
        f[1] != "lm_head_tied") {
      continue;
    }
    Row row = {.generation = f[0], .op = f[1], .mode = f[2], .shapes = f[3], .dtype = f[4]};
    row.product = {
        .m = Number(f[5]), .k = Number(f[6]), .n = Number(f[7]), .count = f[8].empty() ? 1 : Number(f[8])};
    row.cycles = Number(f[9]);
    row.arg_bytes = Number(f[10]);
    rows.push_back(row);
  }
  return rows;
}

// Left and right type: "bf16" or "bf16xint8".
std::vector<std::string> Types(const Row& row) {
  std::vector<std::string> types = absl::StrSplit(row.dtype, 'x');
  if (types.size() == 1) types.push_back(types[0]);
  return types;
}

int64_t Bits(const std::string& type) {
  if (type == "f32") return 32;
  if (type == "bf16") return 16;
  return type == "int4" ? 4 : 8;
}

DType TypeOf(const std::string& type) {
  if (type == "f32") return DType::kF32;
  if (type == "bf16") return DType::kBF16;
  if (type == "e4m3") return DType::kF8E4M3;
  if (type == "e5m2") return DType::kF8E5M2;
  EXPECT_EQ(type, "int8");
  return DType::kI8;
}

Exact ArgumentBytes(const Row& row) {
  const std::vector<std::string> types = Types(row);
  Exact bytes = 0;
  size_t i = 0;
  for (absl::string_view operand : absl::StrSplit(row.shapes, ' ')) {
    std::vector<int64_t> shape;
    for (absl::string_view extent : absl::StrSplit(operand, 'x'))
      shape.push_back(Number(std::string(extent)));
    const int64_t bits = Bits(types[i++]);
    bytes += row.mode == "rowmajor" ? RowMajorBytes(bits, shape) : PaddedBytes(bits, shape);
  }
  return bytes;
}

// How much faster than bf16 the chip's file says these types multiply; without end where it gives no rate,
// since a refusal is no bound.
double Speed(const Row& row, const Device& device) {
  const std::vector<std::string> types = Types(row);
  if (types[0] == "int4" ||
      types[1] == "int4") {  // no type of ours: int4 with itself as published, else bf16
    return types[0] == types[1] && (device.generation == "v5e" || device.generation == "v6e") ? 4 : 1;
  }
  const absl::StatusOr<const ChipFigures*> chip = FindChipFacts(device.chip);
  EXPECT_TRUE(chip.ok()) << chip.status();
  const auto mode = FindMode(**chip, TypeOf(types[0]), TypeOf(types[1]));
  const auto bf16 = FindMode(**chip, DType::kBF16, DType::kBF16);
  EXPECT_TRUE(bf16.ok()) << row.Name();
  if (!mode.ok()) {
    EXPECT_EQ(device.chip + (" " + row.dtype), "v5e e5m2xe5m2") << mode.status();
    return std::numeric_limits<double>::infinity();
  }
  return (*mode)->rate.value() / (*bf16)->rate.value();
}

double MatrixCycles(const Row& row, const Device& device) {
  const ShapeRule& shape = device.shape;
  const int64_t macs_per_cycle = shape.units * shape.edge * shape.edge;
  return static_cast<double>(TileMacs(row.product, shape).value()) / macs_per_cycle / Speed(row, device);
}

// Why a bound may stand above an estimate. Empty: no reason is known, and one of the two must be mended.
std::string Reason(const Row& row, const Device& device, bool memory) {
  if (memory) return device.clock_is_published ? "" : "no clock is published; the typical rate is no peak";
  if (!device.clock_is_published) {
    return "an array that passes one row a cycle would need 3.5 GHz (v6e) or 4.4 GHz (7x) to reach the "
           "published "
           "peak; the compiler's passes more";
  }
  return "";
}

TEST(CompiledOps, ArgumentsTakeTheCompilersBytes) {
  int rows = 0;
  for (const Row& row : Products()) {
    EXPECT_EQ(ArgumentBytes(row).value(), row.arg_bytes) << row.Name();
    ++rows;
  }
  EXPECT_EQ(rows, 761);
}

TEST(CompiledOps, NoBoundExceedsAnEstimateWithoutAReason) {
  std::vector<std::string> found;
  int compared = 0;
  for (const Device& device : Devices()) {
    for (const Row& row : Products()) {
      if (row.generation != device.generation) continue;
      ++compared;
      const double matrix = MatrixCycles(row, device);
      const double memory = static_cast<double>(ArgumentBytes(row).value()) / device.bytes_per_cycle;
      const auto note = [&](absl::string_view rung, double bound, bool is_memory) {
        if (bound <= static_cast<double>(row.cycles)) return;
        const std::string reason = Reason(row, device, is_memory);
        EXPECT_NE(reason, "") << row.Name() << " " << rung << " " << bound << " > " << row.cycles;
        found.push_back(absl::StrFormat("%s: %s %.0f > %d: %s", row.Name(), rung, bound, row.cycles, reason));
      };
      note("R2", matrix, false);
      note("R3", memory, true);
    }
  }
  EXPECT_EQ(compared, 761);
  std::ifstream file(std::string(TWINFORGE_SOURCE_DIR) + "/tests/cost/data/aot_contradictions.txt");
  std::stringstream pinned;
  pinned << file.rdbuf();
  const std::string text = absl::StrCat(absl::StrJoin(found, "\n"), "\n");
  std::printf("%zu of %d rows contradict a bound:\n%s", found.size(), compared, text.c_str());
  EXPECT_EQ(text, pinned.str());
}

}  // namespace
}  // namespace twinforge
