#include "cost/chip.h"

#include <string>

#include "base/diagnostic.h"
#include "cost/chip.pb.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace twinforge {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const ChipFigures& Facts(absl::string_view id) { return **FindChipFacts(id); }

Chip Parsed(const std::string& id) {
  Chip chip;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(*ChipText(id), &chip));
  return chip;
}

const MatmulMode& Mode(absl::string_view chip, DType left, DType right) {
  return **FindMode(Facts(chip), left, right);
}

TEST(Chips, AreKnownByIdAndAlias) {
  std::vector<std::string> ids;
  for (const ChipSummary& chip : AllChips()) ids.push_back(chip.id);
  EXPECT_THAT(ids, ElementsAre("h100_sxm", "tpu7x", "v5e", "v5p", "v6e"));
  EXPECT_EQ(FindChip("h100")->id, "h100_sxm");
  EXPECT_EQ(FindChip("v6e")->mxu, 256);
  EXPECT_EQ(FindChip("v6e")->lanes, 128);
  EXPECT_EQ(FindChip("h100_sxm")->lanes, 0);
}

TEST(Chips, UnknownOnesNameTheNearest) {
  const absl::Status status = FindChip("v6").status();
  ASSERT_TRUE(DiagnosticOf(status).has_value());
  EXPECT_EQ(DiagnosticOf(status)->code, 1701);
  EXPECT_THAT(DiagnosticOf(status)->hint, HasSubstr("v"));
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kUnsupported);
}

TEST(Chips, HoldTheTablesNumbers) {
  EXPECT_EQ(Facts("v5e").memory_bytes, int64_t{16} << 30);
  EXPECT_EQ(Facts("v5p").memory_bandwidth.value(), 2765e9);
  EXPECT_EQ(Facts("tpu7x").best_rate.value(), 4614e12);
  EXPECT_EQ(Facts("v6e").best_dtype, "int4");
  EXPECT_EQ(Facts("h100").best_rate.value(), 1979e12) << "sparse peaks are not for dense products";
}

TEST(Chips, WordsAreMissingNumbersNotZeros) {
  EXPECT_FALSE(Parsed("v6e").has_clock());
  EXPECT_FALSE(Parsed("v6e").has_vector_rate());
  EXPECT_FALSE(Parsed("tpu7x").has_price());
  EXPECT_TRUE(Parsed("v5e").has_clock());
}

TEST(Chips, KeepRivalsBesideTheValueUsed) {
  const Chip::Number bandwidth = Parsed("v5p").hbm_bandwidth();
  EXPECT_EQ(bandwidth.value(), 2765);
  ASSERT_EQ(bandwidth.rival_size(), 2);
  EXPECT_EQ(bandwidth.rival(0).value(), 2800);
  EXPECT_EQ(bandwidth.rival(1).value(), 2460);
}

TEST(Modes, FollowEachGeneration) {
  EXPECT_EQ(Mode("v6e", DType::kBF16, DType::kBF16).rate.value(), 918e12);
  EXPECT_EQ(Mode("v6e", DType::kI8, DType::kI8).rate.value(), 1836e12);
  // e4m3 becomes bf16 on v6e and stays on tpu7x; int8 the other way round.
  EXPECT_EQ(Mode("v6e", DType::kF8E4M3, DType::kF8E4M3).dtype, "bf16");
  EXPECT_TRUE(Mode("v6e", DType::kF8E4M3, DType::kF8E4M3).converts_right);
  EXPECT_EQ(Mode("tpu7x", DType::kF8E4M3, DType::kF8E4M3).rate.value(), 4614e12);
  EXPECT_EQ(Mode("tpu7x", DType::kI8, DType::kI8).dtype, "bf16");
  EXPECT_EQ(Mode("tpu7x", DType::kI8, DType::kI8).rate.value(), 2307e12);
  EXPECT_EQ(Mode("v5e", DType::kF8E5M2, DType::kF8E5M2).dtype, "bf16") << "no published rate above bf16's";
}

TEST(Modes, MixTypesOnlyWhereTheUnitDoes) {
  const MatmulMode& mixed = Mode("tpu7x", DType::kBF16, DType::kF8E4M3);
  EXPECT_EQ(mixed.dtype, "bf16 x f8_e4m3");
  EXPECT_EQ(mixed.rate.value(), 2307e12) << "at the slower type's rate";
  EXPECT_FALSE(mixed.converts_right);
  const MatmulMode& weights8 = Mode("v6e", DType::kBF16, DType::kI8);
  EXPECT_EQ(weights8.dtype, "bf16");
  EXPECT_FALSE(weights8.converts_left);
  EXPECT_TRUE(weights8.converts_right);
  EXPECT_EQ(Mode("h100", DType::kF32, DType::kF32).dtype, "tf32");
}

TEST(Modes, UnknownTypesAreRefused) {
  for (const DType dtype : {DType::kF4, DType::kF64, DType::kI64, DType::kF8E8M0}) {
    const absl::Status status = FindMode(Facts("v6e"), DType::kBF16, dtype).status();
    ASSERT_FALSE(status.ok()) << std::string(Name(dtype));
    EXPECT_EQ(DiagnosticOf(status)->code, 1704);
  }
}

TEST(Lint, IsCleanForWhatWeShip) { EXPECT_THAT(LintChips(), IsEmpty()); }

TEST(Lint, RecomputesThePeak) {
  Chip chip = Parsed("v5e");
  chip.mutable_matrix_units()->set_value(8);  // what another tool believed
  EXPECT_THAT(LintChip(chip), Contains(HasSubstr("peak bf16: published 197")));
  chip = Parsed("v5e");
  chip.mutable_clock()->set_value(1500 * 1.029);
  EXPECT_THAT(LintChip(chip), IsEmpty());
  chip.mutable_clock()->set_value(1500 * 1.04);
  EXPECT_THAT(LintChip(chip), Contains(HasSubstr("peak bf16")));
}

TEST(Lint, WantsSourcesUnitsAndLegalTypes) {
  Chip chip = Parsed("v6e");
  chip.mutable_hbm_size()->clear_source();
  chip.mutable_price()->set_unit("EUR/h");
  chip.mutable_peak(0)->mutable_rate()->clear_source();
  chip.mutable_conversion(0)->set_as("f64");
  EXPECT_THAT(LintChip(chip), ElementsAre("v6e: peak[0]: rate: no source", "v6e: hbm_size: no source",
                                          "v6e: price: unknown unit EUR/h",
                                          "v6e: conversion of f32 to f64, which has no peak"));
}

TEST(ChipTest, ANumberThatNoSourceGivesIsRefused) {
  const absl::StatusOr<const ChipFigures*> v6e = FindChipFacts("v6e");
  ASSERT_TRUE(v6e.ok());
  EXPECT_TRUE(CheckFigures(**v6e).ok());
  ChipFigures lacking = **v6e;
  lacking.memory_bytes = 0;
  const absl::Status status = CheckFigures(lacking);
  EXPECT_EQ(DiagnosticOf(status)->code, 1706);
  EXPECT_EQ(DiagnosticOf(status)->message, "no source gives its memory size");
}

}  // namespace
}  // namespace twinforge
