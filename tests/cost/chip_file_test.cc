#include "cost/chip_file.h"

#include <cmath>
#include <functional>
#include <random>
#include <string>

#include "absl/strings/match.h"
#include "base/diagnostic.h"
#include "cost/chip.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace twinforge {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Chip File(absl::string_view id) { return **FindIn(ShippedChips(), id); }

// ---- reading

std::string Place(const std::string& text) {
  const absl::StatusOr<Chip> chip = ParseChip(text, "mine");
  EXPECT_FALSE(chip.ok()) << text;
  const Diagnostic diagnostic = *DiagnosticOf(chip.status());
  EXPECT_EQ(diagnostic.code, 1708);
  EXPECT_EQ(ExitCodeOf(chip.status()), ExitCode::kUsage);
  EXPECT_FALSE(diagnostic.message.empty());
  return diagnostic.place;
}

TEST(ParseChip, NamesLineAndColumnOfTheFirstMistake) {
  EXPECT_EQ(Place("id: \"x\"\nhbm_sise { value: 1 }\n"), "mine:2:1");
  EXPECT_EQ(Place("id: \"x\"\n\tclock {\tvalue: 1 unot: 3 }\n"), "mine:2:19") << "a tab is one column";
  EXPECT_EQ(Place("id: \"x\"\n  clock { value: fast }\n"), "mine:2:18");
  EXPECT_EQ(Place("id: \"x\"\nclock { value: 1 } clock { value: 2 }\n").substr(0, 7), "mine:2:");
  EXPECT_EQ(Place("id: \"x\"\nkind: ABACUS\n\n"), "mine:2:7");
  EXPECT_EQ(Place("id: \"x\nclock { value: 1 }\n").substr(0, 7), "mine:1:");
  EXPECT_EQ(Place("id: \"x\"\nyear: 99999999999999999999\n").substr(0, 7), "mine:2:");
  EXPECT_EQ(Place("clock { value: 1 "), "mine:1:18");
  EXPECT_EQ(Place(std::string("id: \"x\"\n\0", 9)).substr(0, 7), "mine:2:");
  EXPECT_EQ(Place("id: \"x\"\n id: \"y\"\n"), "mine:2:2");
  EXPECT_EQ(Place("id: \"x\"\npeak { rate { unit: \"\xFF\" } }\n"), "mine:2:15");
  for (const char* bad : {"\\377", "\\300\\200", "\\355\\240\\200", "\\364\\220\\200\\200", "\\342\\202"})
    EXPECT_EQ(Place(std::string("id: \"x\"\nname: \"") + bad + "\""), "mine:2:1") << bad;
  EXPECT_TRUE(ParseChip("id: \"x\" name: \"\u00b5\u20ac\\360\\237\\222\\251\"", "mine").ok());
  EXPECT_EQ(Place(""), "mine:1:1") << "no id";
}

TEST(ParseChip, OffersTheNearestKey) {
  const auto said = [](const std::string& text) { return *DiagnosticOf(ParseChip(text, "mine").status()); };
  EXPECT_EQ(said("hbm_sise { value: 1 }").message, "Chip has no key named \"hbm_sise\"");
  EXPECT_EQ(said("hbm_sise { value: 1 }").hint, "did you mean hbm_size?");
  EXPECT_EQ(said("clock { unot: \"MHz\" }").hint, "did you mean unit?");
  EXPECT_THAT(said("clock { zzzzzzzzz: 1 }").hint, HasSubstr("confidence"));
  EXPECT_LT(said(std::string(100000, 'z')).message.size(), 300) << "no megabyte in a message";
}

// Numbers that a file may hold and no chip has.
TEST(ParseChip, AbsurdNumbersAreNoFigures) {
  for (const char* value : {"nan", "inf", "-1", "1e300", "-inf", "1e-300"}) {
    Chip chip = File("b200");
    const double number = std::strtod(value, nullptr);
    for (Chip::Number* spoilt :
         {chip.mutable_hbm_usable(), chip.mutable_shared_size_per_core(), chip.mutable_cores()})
      spoilt->set_value(number);
    const absl::Status status = CheckFigures(FiguresOf(chip));
    ASSERT_FALSE(status.ok()) << value;
    EXPECT_EQ(DiagnosticOf(status)->code, 1706) << value;
  }
}

// Bytes of a true file replaced, dropped and doubled at random: a chip or a diagnostic with a place, and
// whatever parses can be linted and printed.
TEST(ParseChip, SurvivesDamage) {
  std::string whole;
  google::protobuf::TextFormat::PrintToString(File("v4"), &whole);
  std::mt19937 random(7);
  int parsed = 0, refused = 0;
  for (int round = 0; round < 1500; ++round) {
    std::string text = whole;
    for (int change = 0; change <= round % 3; ++change) {
      const size_t at = random() % text.size();
      const size_t length = std::min<size_t>(random() % 40, text.size() - at);
      if (round % 4 == 0) text[at] = static_cast<char>(random());
      if (round % 4 == 1) text.erase(at, length);
      if (round % 4 == 2) text.insert(at, text.substr(at, length));
      if (round % 4 == 3) text.replace(at, length, text, random() % text.size(), length);
    }
    const absl::StatusOr<Chip> chip = ParseChip(text, "mine");
    if (!chip.ok()) {
      EXPECT_EQ(DiagnosticOf(chip.status())->code, 1708) << chip.status();
      EXPECT_TRUE(absl::StartsWith(DiagnosticOf(chip.status())->place, "mine:"));
      ++refused;
      continue;
    }
    ++parsed;
    LintChip(*chip);
    NumbersOf(*chip);
    CheckFigures(FiguresOf(*chip)).IgnoreError();
    LintNames(std::vector<Chip>{*chip});
  }
  EXPECT_GT(parsed, 100);
  EXPECT_GT(refused, 100);
}

TEST(ReadChip, TakesAFileOfThisSizeAndNoLarger) {
  const std::string path = ::testing::TempDir() + "/chip_file_test.textproto";
  const auto write = [&](const std::string& text) {
    FILE* file = fopen(path.c_str(), "w");
    fwrite(text.data(), 1, text.size(), file);
    fclose(file);
  };
  write("id: \"mine\"");
  EXPECT_EQ(ReadChip(path)->id(), "mine");
  write("id: \"mine\" #" + std::string(2 << 20, ' '));
  EXPECT_FALSE(ReadChip(path).ok());
  EXPECT_FALSE(ReadChip(::testing::TempDir()).ok());
  EXPECT_FALSE(ReadChip("/nowhere/at/all").ok());
}

TEST(ShippedChips, SurviveTheirOwnText) {
  for (const Chip& chip : ShippedChips()) {
    std::string text, again;
    google::protobuf::TextFormat::PrintToString(chip, &text);
    const absl::StatusOr<Chip> read = ParseChip(text, chip.id());
    ASSERT_TRUE(read.ok()) << read.status();
    google::protobuf::TextFormat::PrintToString(*read, &again);
    EXPECT_EQ(text, again) << chip.id();
  }
}

// The names in the tables of measurements and serving runs.
TEST(FindIn, KnowsWhatPeopleType) {
  for (const char* id :
       {"v5e", "v5p", "v6e", "tpu7x", "h100_sxm", "h200_sxm", "b200_sxm", "gb200", "b300_sxm", "gb300"})
    EXPECT_EQ(File(id).id(), id);
  const std::pair<const char*, const char*> kAliases[] = {
      {"h100", "h100_sxm"}, {"h200", "h200_sxm"},     {"B200", "b200_sxm"}, {"b300", "b300_sxm"},
      {"a100", "a100_sxm"}, {"trillium", "v6e"},      {"V6E", "v6e"},       {"7x", "tpu7x"},
      {"TPU7x", "tpu7x"},   {"H200-SXM", "h200_sxm"}, {"tpu-v5e", "v5e"},   {"A100-SXM4-80GB", "a100_sxm"},
      {"GH200", "gh200"},   {"MI300X", "mi300x"}};
  for (const auto& [word, id] : kAliases) EXPECT_EQ(File(word).id(), id) << word;
}

// ---- lint

TEST(Lint, IsCleanForWhatWeShip) {
  for (const Chip& chip : ShippedChips()) EXPECT_THAT(LintChip(chip), IsEmpty());
  EXPECT_THAT(LintNames(ShippedChips()), IsEmpty());
  EXPECT_THAT(FieldsWithoutRange(), IsEmpty());
}

struct Spoilt {
  const char* chip;
  std::function<void(Chip&)> spoil;
  const char* finding;
};

// One change each; the finding says the chip, the number and what is wrong.
TEST(Lint, NamesEachKindOfMistake) {
  const Spoilt kCases[] = {
      {"v6e", [](Chip& c) { c.mutable_hbm_size()->clear_source(); }, "v6e: hbm_size: no source"},
      {"v6e", [](Chip& c) { c.mutable_hbm_size()->clear_confidence(); }, "v6e: hbm_size: no confidence"},
      {"v6e", [](Chip& c) { c.mutable_hbm_size()->set_confidence(static_cast<Chip::Confidence>(9)); },
       "v6e: hbm_size: no confidence"},
      {"v6e", [](Chip& c) { c.mutable_price()->set_unit("EUR/h"); }, "v6e: price: unknown unit EUR/h"},
      {"v6e", [](Chip& c) { c.mutable_hbm_size()->set_unit("GB/s"); },
       "v6e: hbm_size: in \"GB/s\", where \"GiB\" belongs"},
      {"v6e", [](Chip& c) { c.mutable_hbm_size()->set_value(0); }, "v6e: hbm_size: not a positive number"},
      {"v6e", [](Chip& c) { c.mutable_hbm_bandwidth()->set_value(std::nan("")); },
       "v6e: hbm_bandwidth: not a positive number"},
      {"v6e", [](Chip& c) { c.mutable_hbm_bandwidth()->set_value(1.638); },
       "v6e: hbm_bandwidth: 1.638 is out of range, 50 to 100000 GB/s"},
      {"v6e", [](Chip& c) { c.mutable_hbm_bandwidth()->set_value(1e300 * 1e300); },
       "v6e: hbm_bandwidth: inf is out of range, 50 to 100000 GB/s"},
      {"v6e", [](Chip& c) { c.mutable_links()->set_value(4.5); }, "v6e: links: not a whole number"},
      {"v6e", [](Chip& c) { c.mutable_price()->set_date("December"); },
       "v6e: price: date December is no YYYY-MM-DD"},
      {"v6e", [](Chip& c) { c.mutable_hbm_size()->add_rival()->set_value(32); },
       "v6e: hbm_size: a rival without source"},
      {"v6e", [](Chip& c) { c.mutable_hbm_size()->add_rival()->set_value(32); },
       "v6e: hbm_size: a rival that agrees"},
      {"v6e", [](Chip& c) { c.mutable_hbm_size()->add_rival()->set_value(320); },
       "v6e: hbm_size: 32 and its rival 320 can't mean the same"},
      {"v4", [](Chip& c) { c.mutable_measured_power()->set_value(300); },
       "v4: measured_power: outside its own range"},
      {"v6e", [](Chip& c) { c.mutable_peak(0)->set_dtype("bf61"); }, "v6e: peak bf61: no type of that name"},
      {"v6e", [](Chip& c) { *c.add_peak() = c.peak(0); }, "v6e: peak bf16: said twice"},
      {"v6e", [](Chip& c) { c.mutable_peak(0)->mutable_rate()->clear_source(); },
       "v6e: peak bf16: no source"},
      {"v6e", [](Chip& c) { c.mutable_peak(0)->clear_source(); },
       "v6e: peak bf16: no source says that the unit multiplies it"},
      {"v4", [](Chip& c) { c.clear_mix(); }, "v4: peak i8: used in a mix, and in none"},
      {"v6e", [](Chip& c) { c.mutable_conversion(0)->set_as("f64"); },
       "v6e: conversion of f32 to f64, which has no peak"},
      {"v6e", [](Chip& c) { c.mutable_conversion(0)->clear_source(); }, "v6e: conversion of f32: no source"},
      {"v6e", [](Chip& c) { c.mutable_mix(0)->add_dtype("f64"); }, "v6e: mix of f64, which has no peak"},
      {"v6e", [](Chip& c) { c.clear_matrix_edge(); }, "v6e: neither a matrix edge nor a tensor tile"},
      {"v6e", [](Chip& c) { c.clear_lanes(); }, "v6e: lanes and sublanes: not said, and every TPU has them"},
      {"h100", [](Chip& c) { c.mutable_tensor_tile()->clear_m(); }, "h100_sxm: tensor_tile: not positive"},
      // What another tool believed of v5e.
      {"v5e", [](Chip& c) { c.mutable_matrix_units()->set_value(8); },
       "v5e: peak bf16: published 197, units and clock make 393.216 TFLOP/s"},
      {"h100", [](Chip& c) { c.mutable_peak(0)->mutable_rate()->set_value(835); },
       "h100_sxm: peak bf16: units and clock leave 432.1 multiply-adds a cycle, no power of two"},
      // A sparse figure stored as dense, as an open simulator did with L40S.
      {"l40s", [](Chip& c) { c.mutable_peak(3)->mutable_rate()->set_value(1466); },
       "l40s: peak f8_e4m3: 4.05 times bf16's"},
      {"l40s", [](Chip& c) { c.mutable_peak(3)->mutable_rate()->set_value(1466); },
       "l40s: peak f8_e4m3 2:4: not twice the dense rate"},
      {"v5e", [](Chip& c) { c.mutable_vector_rate()->set_value(6.8); },
       "v5e: vector_rate: 4.43 operations a lane and cycle, no whole number"},
      {"v5e", [](Chip& c) { c.mutable_hbm_usable()->set_value(17); },
       "v5e: hbm_usable: above hbm_size (17 GiB, 16 GiB)"},
      {"h100", [](Chip& c) { c.mutable_shared_size()->set_value(40); },
       "h100_sxm: shared_size: not shared_size_per_core times cores"},
      // Bandwidth per link taken for bandwidth per chip, as another tool has it for v6e.
      {"v6e", [](Chip& c) { c.mutable_network_bandwidth_both_ways()->set_value(100); },
       "v6e: network_bandwidth_both_ways: no source's links add up to it"},
      {"v6e", [](Chip& c) { c.mutable_links()->set_value(6); }, "v6e: links: a torus has two for each axis"},
      {"v6e", [](Chip& c) { c.clear_torus_axes(); }, "v6e: torus_axes: said of a torus, and only of one"},
      {"v6e", [](Chip& c) { c.add_torus_extent(16); }, "v6e: torus_extent: not one for each axis"},
      {"h100", [](Chip& c) { *c.mutable_wrap_multiple() = File("v4").wrap_multiple(); },
       "h100_sxm: wrap_multiple: said of a torus only"},
      {"l4", [](Chip& c) { c.mutable_network_bandwidth_both_ways()->set_value(64); },
       "l4: network_bandwidth_both_ways: the fabric is the host's bus"},
      {"h100", [](Chip& c) { c.mutable_design_power()->set_value(2000); },
       "h100_sxm: design_power: above all_in_power (2000 W, 1730 W)"},
      {"v6e", [](Chip& c) { c.mutable_missing(0)->set_column("hbm_gbps"); },
       "v6e: hbm_bandwidth: its column is missing as"},
      {"v6e", [](Chip& c) { c.set_id("V6E!"); }, "V6E!: id: letters, digits and _ only, in lower case"},
      {"v6e", [](Chip& c) { c.add_alias("Trill"); },
       "v6e: alias Trill: letters, digits and _ only, in lower case"},
      {"v6e", [](Chip& c) { c.clear_vendor(); }, "v6e: vendor: not said"},
      {"v6e", [](Chip& c) { c.clear_generation(); }, "v6e: generation: not said"},
      {"v6e", [](Chip& c) { c.set_year(24); }, "v6e: year: 24 is none of this century"},
      {"v6e", [](Chip& c) { c.set_kind(static_cast<Chip::Kind>(7)); }, "v6e: kind: neither TPU nor GPU"},
      {"tpu8t", [](Chip& c) { c.mutable_peak(0)->mutable_rate()->set_value(2988); },
       "tpu8t: accepted peak f8_e4m3: 6 times bf16's: no such finding"},
      {"tpu8t", [](Chip& c) { c.mutable_accepted(0)->clear_reason(); },
       "tpu8t: accepted peak f8_e4m3: 6 times bf16's: no reason"},
  };
  for (const Spoilt& spoilt : kCases) {
    Chip chip = File(spoilt.chip);
    spoilt.spoil(chip);
    EXPECT_THAT(LintChip(chip), Contains(HasSubstr(spoilt.finding)));
  }
}

TEST(Lint, LeavesThreePerCentOfThePeakToRounding) {
  Chip chip = File("v5e");
  chip.clear_vector_rate();
  chip.mutable_clock()->set_value(1500 * 1.029);
  EXPECT_THAT(LintChip(chip), IsEmpty());
  chip.mutable_clock()->set_value(1500 * 1.04);
  EXPECT_THAT(LintChip(chip), ElementsAre(HasSubstr("peak bf16")));
}

TEST(Lint, KnowsNamesThatTwoChipsShare) {
  std::vector<Chip> chips = {File("v6e"), File("v5e")};
  EXPECT_THAT(LintNames(chips), IsEmpty());
  chips[1].add_alias("trillium");
  EXPECT_THAT(LintNames(chips), ElementsAre("v5e: trillium: also a name of v6e"));
  chips[1] = File("v5e");
  chips[1].set_id("v6e");
  EXPECT_THAT(LintNames(chips), Contains("v6e: v6e: also a name of v6e"));
  chips[1] = File("v5e");
  chips[1].add_alias("v5lite");
  EXPECT_THAT(LintNames(chips), ElementsAre("v5e: alias v5lite: said twice"));
}

}  // namespace
}  // namespace twinforge
