#include "cost/chip.h"

#include <string>

#include "base/diagnostic.h"
#include "cost/chip_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace twinforge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

const ChipFigures& Facts(absl::string_view id) { return **FindChipFacts(id); }

const Chip& File(absl::string_view id) { return **FindIn(ShippedChips(), id); }

const MatmulMode& Mode(absl::string_view chip, DType left, DType right) {
  return **FindMode(Facts(chip), left, right);
}

TEST(Chips, AreKnownByIdAndAlias) {
  std::vector<std::string> ids;
  for (const ChipSummary& chip : AllChips()) ids.push_back(chip.id);
  EXPECT_THAT(ids, ElementsAre("a100_sxm", "a100_sxm_40gb", "b200_sxm", "b300_sxm", "gb200", "gb300", "gh200",
                               "h100_sxm", "h100_sxm_96gb", "h200_sxm", "h800_sxm", "l4", "l40s", "mi300x",
                               "mi325x", "mi350x", "mi355x", "tpu7x", "tpu8i", "tpu8t", "v2", "v3", "v4",
                               "v4i", "v5e", "v5p", "v6e"));
  EXPECT_EQ(FindChip("h100")->id, "h100_sxm");
  EXPECT_EQ(FindChip("H100-SXM-80GB")->id, "h100_sxm") << "the table's name";
  EXPECT_EQ(FindChip("TPU v6e")->id, "v6e");
  EXPECT_EQ(FindChip("Ironwood")->id, "tpu7x");
  EXPECT_EQ(FindChip("v6e")->mxu, 256);
  EXPECT_EQ(FindChip("v6e")->lanes, 128);
  EXPECT_EQ(FindChip("h100_sxm")->lanes, 0);
}

TEST(Chips, UnknownOnesNameTheNearest) {
  const auto hint = [](const std::string& word) {
    const absl::Status status = FindChip(word).status();
    EXPECT_EQ(DiagnosticOf(status)->code, 1701) << word;
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kUnsupported);
    return DiagnosticOf(status)->hint;
  };
  EXPECT_THAT(hint("v6"), HasSubstr("v6e"));
  EXPECT_THAT(hint("h100_pcie"), HasSubstr("h100_sxm"));
  EXPECT_THAT(hint("mi30x"), HasSubstr("mi300x"));
  EXPECT_EQ(hint("v5"), "did you mean v5e, v5p, v2?") << "those that begin so, then those a letter away";
  EXPECT_THAT(hint("abacusabacus"), HasSubstr("chip list"));
  EXPECT_THAT(hint(""), HasSubstr("chip list"));
}

TEST(Chips, HoldTheTablesNumbers) {
  EXPECT_EQ(Facts("v5e").memory_bytes, int64_t{63} << 28) << "15.75 of 16 GiB are a program's";
  EXPECT_EQ(Facts("h100").memory_bytes, int64_t{80} << 30);
  EXPECT_EQ(Facts("v4").on_chip_bytes, int64_t{160} << 20) << "VMEM and CMEM";
  EXPECT_EQ(Facts("h100").on_chip_bytes, int64_t{83} << 20) << "L2 and the shared memories";
  EXPECT_EQ(Facts("b200").on_chip_bytes, int64_t{163} << 20) << "148 of 256 KiB, where no sum is published";
  EXPECT_EQ(Facts("mi300x").on_chip_bytes, int64_t{307} << 20) << "the last level as well";
  EXPECT_EQ(Facts("v5p").memory_bandwidth.value(), 2765e9);
  EXPECT_EQ(Facts("tpu7x").best_rate.value(), 4614e12);
  EXPECT_EQ(Facts("v6e").best_dtype, "int4");
  EXPECT_EQ(Facts("h100").best_rate.value(), 1979e12) << "sparse peaks are not for dense products";
}

TEST(Chips, WordsAreMissingNumbersNotZeros) {
  EXPECT_FALSE(File("v6e").has_clock());
  EXPECT_FALSE(File("v6e").has_vector_rate());
  EXPECT_FALSE(File("tpu7x").has_price());
  EXPECT_TRUE(File("v5e").has_clock());
}

TEST(Chips, KeepRivalsBesideTheValueUsed) {
  const Chip::Number bandwidth = File("v5p").hbm_bandwidth();
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

TEST(Modes, ATypeMayBeTakenOnlyBesideAnother) {
  const MatmulMode& mixed = Mode("v4", DType::kBF16, DType::kI8);
  EXPECT_EQ(mixed.dtype, "bf16 x i8");
  EXPECT_FALSE(mixed.converts_right);
  const MatmulMode& same = Mode("v4", DType::kI8, DType::kI8);
  EXPECT_TRUE(same.converts_left || same.converts_right) << "v4 multiplies no two int8 operands";
  EXPECT_EQ(same.rate.value(), 275e12);
  EXPECT_EQ(Mode("v4i", DType::kBF16, DType::kI8).rate.value(), 137e12) << "int8's rate is unverified there";
}

TEST(Modes, FollowTheEncodingsOfEachVendor) {
  EXPECT_EQ(Mode("mi300x", DType::kF8E4M3, DType::kF8E4M3).dtype, "bf16") << "CDNA3 takes fnuz";
  EXPECT_EQ(Mode("mi300x", DType::kF8E4M3Fnuz, DType::kF8E4M3Fnuz).rate.value(), 2615e12);
  EXPECT_EQ(Mode("mi355x", DType::kF8E4M3, DType::kF8E4M3).rate.value(), 5000e12);
  EXPECT_EQ(Mode("a100", DType::kF8E4M3, DType::kF8E4M3).dtype, "bf16");
  EXPECT_EQ(Mode("l40s", DType::kF8E4M3, DType::kF8E4M3).rate.value(), 733e12) << "dense, not 1466";
  EXPECT_EQ(Mode("b200", DType::kF4, DType::kF4).rate.value(), 9000e12);
  EXPECT_EQ(Mode("b200", DType::kF8E4M3, DType::kF4).rate.value(), 4500e12);
  EXPECT_EQ(Mode("b200", DType::kBF16, DType::kF4).dtype, "bf16");
}

// int8 runs natively on B300, at a rate that no source gives; bf16's may be slower or faster, so none is
// used.
TEST(Modes, ANativeTypeOfUnknownRateIsRefused) {
  for (const auto& [chip, dtype] :
       {std::pair("b300", DType::kI8), std::pair("v5e", DType::kF8E5M2), std::pair("gb300", DType::kF32),
        std::pair("b200", DType::kF6E2M3), std::pair("mi325x", DType::kF32)}) {
    const absl::Status status = FindMode(Facts(chip), dtype, dtype).status();
    ASSERT_FALSE(status.ok()) << chip;
    EXPECT_EQ(DiagnosticOf(status)->code, 1704) << chip;
  }
  EXPECT_EQ(Mode("b300", DType::kBF16, DType::kBF16).rate.value(), 2250e12)
      << "tf32's unknown rate is no matter";
  EXPECT_EQ(Mode("b300", DType::kBF16, DType::kI8).dtype, "bf16");
  EXPECT_EQ(Mode("v5e", DType::kBF16, DType::kF8E5M2).rate.value(), 197e12) << "at most the slower one's";
  EXPECT_EQ(Mode("v5p", DType::kF8E5M2, DType::kF8E5M2).rate.value(), 459e12);
}

TEST(Modes, UnknownTypesAreRefused) {
  for (const DType dtype : {DType::kF4, DType::kF64, DType::kI64, DType::kF8E8M0}) {
    const absl::Status status = FindMode(Facts("v6e"), DType::kBF16, dtype).status();
    ASSERT_FALSE(status.ok()) << std::string(Name(dtype));
    EXPECT_EQ(DiagnosticOf(status)->code, 1704);
  }
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

// Every other chip can be scored.
TEST(ChipTest, WhatIsNotKnownOrNotVerifiedIsNoGroundForAScore) {
  std::vector<std::pair<std::string, std::string>> refused;
  for (const ChipFigures& chip : AllChipFacts()) {
    const absl::Status status = CheckFigures(chip);
    if (status.ok()) continue;
    const int code = DiagnosticOf(status)->code;
    EXPECT_EQ(code, chip.unverified.empty() ? 1706 : 1709) << chip.summary.id;
    refused.emplace_back(chip.summary.id, DiagnosticOf(status)->message);
  }
  EXPECT_THAT(refused, ElementsAre(Pair("mi325x", "no source gives its on-chip memory"),
                                   Pair("mi350x", "no source gives its peak"),
                                   Pair("mi355x", "no source gives its on-chip memory"),
                                   Pair("tpu8i", HasSubstr("announcements")),
                                   Pair("tpu8t", HasSubstr("announcements"))));
}

}  // namespace
}  // namespace twinforge
