// The chip files against the tables that they are made from, cell by cell and both ways. Reads the tables by
// itself: it shares nothing with make_chips.py.
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cost/chip_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace twinforge {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Row = std::map<std::string, std::string>;

// RFC 4180: quoted cells may hold commas and doubled quotes.
std::vector<std::string> Cells(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      cells.back() += '"';
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else if (c != '\r') {
      cells.back() += c;
    }
  }
  return cells;
}

std::vector<Row> Table(const std::string& name) {
  std::ifstream file(std::string(TWINFORGE_SOURCE_DIR) + "/cost/chips/" + name);
  std::string line;
  EXPECT_TRUE(std::getline(file, line)) << name;
  const std::vector<std::string> header = Cells(line);
  std::vector<Row> rows;
  while (std::getline(file, line)) {
    const std::vector<std::string> cells = Cells(line);
    EXPECT_EQ(cells.size(), header.size()) << name << ": " << line;
    Row row;
    for (size_t i = 0; i < header.size(); ++i) row[header[i]] = i < cells.size() ? cells[i] : "";
    rows.push_back(row);
  }
  return rows;
}

bool IsNumber(const std::string& cell, double& value) {
  char* end = nullptr;
  value = std::strtod(cell.c_str(), &end);
  return !cell.empty() && *end == '\0';
}

// Columns of words. All others hold numbers.
const std::map<std::string, std::string (*)(const Chip&)> kTexts = {
    {"name", [](const Chip& c) { return c.name(); }},
    {"vendor", [](const Chip& c) { return c.vendor(); }},
    {"year", [](const Chip& c) { return absl::StrCat(c.year()); }},
    {"hbm_type", [](const Chip& c) { return c.hbm_kind(); }},
    {"core_kind", [](const Chip& c) { return c.core_kind(); }},
    {"topology", [](const Chip& c) { return c.topology(); }},
    {"tdp_kind", [](const Chip& c) { return c.design_power_kind(); }},
    {"price_kind", [](const Chip& c) { return c.price_kind(); }},
    {"price_region", [](const Chip& c) { return c.price_region(); }},
    {"confidence",
     [](const Chip& c) { return absl::AsciiStrToLower(Chip::Confidence_Name(c.confidence())); }},
    {"price_date", [](const Chip& c) { return c.price().date(); }},
    {"other_prices", [](const Chip& c) { return c.other_prices(); }},
    {"sources", [](const Chip& c) { return c.sources(); }},
    {"conflicts_notes", [](const Chip& c) { return c.notes(); }},
};

std::vector<const Chip::Number*> NumbersFrom(const Chip& chip, const std::string& column) {
  std::vector<const Chip::Number*> numbers;
  for (const ChipNumber& number : NumbersOf(chip)) {
    if (number.number->column() == column) numbers.push_back(number.number);
  }
  return numbers;
}

std::string MissingWord(const Chip& chip, const std::string& column) {
  for (const Chip::Missing& missing : chip.missing()) {
    if (missing.column() == column) return missing.word();
  }
  return "";
}

// "90/170/192" is least, mean and most; "769 system W per GPU" begins with a server's figure.
bool PowerFits(const Chip& chip, const std::string& cell) {
  std::string text;
  if (chip.has_measured_power()) {
    const Chip::Number& power = chip.measured_power();
    text = absl::StrCat(power.low(), "/", power.value(), "/", power.high());
  } else if (chip.has_measured_system_power()) {
    text = absl::StrCat(chip.measured_system_power().value(), " ", chip.measured_system_power().note());
  }
  return text == cell;
}

void Compare(const Row& row, const Chip& chip, std::vector<std::string>& differences) {
  const auto differ = [&](const std::string& column, const std::string& why) {
    differences.push_back(absl::StrCat(chip.id(), ": ", column, ": ", why));
  };
  for (const auto& [column, cell] : row) {
    const auto text = kTexts.find(column);
    if (text != kTexts.end()) {
      if (text->second(chip) != cell) differ(column, text->second(chip));
      continue;
    }
    double value = 0;
    const std::vector<const Chip::Number*> numbers = NumbersFrom(chip, column);
    if (IsNumber(cell, value)) {
      if (numbers.empty()) differ(column, "not in the file");
      for (const Chip::Number* number : numbers) {
        if (number->value() != value) differ(column, absl::StrCat(number->value(), ", not ", value));
      }
    } else if (column == "measured_chip_power_w" && !cell.empty()) {
      if (!PowerFits(chip, cell)) differ(column, cell);
    } else {
      if (!numbers.empty()) differ(column, "a number, where the table has none");
      if (MissingWord(chip, column) != cell) differ(column, "another word than " + cell);
    }
  }
  for (const ChipNumber& number : NumbersOf(chip)) {
    const std::string& column = number.number->column();
    if (!column.empty() && (row.count(column) == 0 || kTexts.count(column) > 0)) differ(column, "no column");
  }
}

std::vector<std::string> Differences(const std::vector<Row>& rows, const std::vector<Chip>& chips) {
  std::vector<std::string> differences;
  std::set<std::string> seen;
  for (const Chip& chip : chips) {
    for (const Row& row : rows) {
      if (row.at("name") != chip.name()) continue;
      if (seen.insert(chip.name()).second) Compare(row, chip, differences);
    }
    if (seen.count(chip.name()) == 0) differences.push_back(chip.id() + ": no row");
  }
  for (const Row& row : rows) {
    if (seen.count(row.at("name")) == 0) differences.push_back(row.at("name") + ": no file");
  }
  return differences;
}

std::vector<Chip> Shipped() { return {ShippedChips().begin(), ShippedChips().end()}; }

Chip& Named(std::vector<Chip>& chips, const std::string& id) {
  for (Chip& chip : chips) {
    if (chip.id() == id) return chip;
  }
  ADD_FAILURE() << id;
  return chips.front();
}

TEST(ChipsCsv, IsInTheFilesAndTheFilesInIt) {
  const std::vector<Row> rows = Table("chips.csv");
  EXPECT_EQ(rows.size(), 27);
  EXPECT_EQ(Shipped().size(), rows.size());
  EXPECT_THAT(Differences(rows, Shipped()), IsEmpty());
}

// The comparison sees what it should.
TEST(ChipsCsv, NoChangeOfEitherSideGoesUnseen) {
  const std::vector<Row> rows = Table("chips.csv");
  size_t cells = 0;
  for (const Row& row : rows) {
    const std::vector<Chip> chip = {**FindIn(ShippedChips(), row.at("name"))};
    for (const auto& [column, cell] : row) {
      double value = 0;
      IsNumber(cell, value);
      for (const std::string& other : {absl::StrCat(value + 1), std::string(), std::string("not measured")}) {
        if (other == cell) continue;
        Row changed = row;
        changed[column] = other;
        EXPECT_FALSE(Differences({changed}, chip).empty()) << row.at("name") << " " << column << " " << other;
      }
      ++cells;
    }
  }
  EXPECT_EQ(cells, 27 * 52);
  std::vector<Chip> chips = Shipped();
  Named(chips, "v5p").mutable_hbm_bandwidth()->set_value(2800);
  EXPECT_THAT(Differences(rows, chips), Contains("v5p: hbm_gbps: 2800, not 2765"));
  chips = Shipped();
  *Named(chips, "v6e").mutable_clock() = Named(chips, "v5e").clock();
  EXPECT_THAT(Differences(rows, chips), Contains(HasSubstr("a number, where the table has none")));
  chips = Shipped();
  chips.pop_back();
  EXPECT_THAT(Differences(rows, chips), Contains("TPU v6e: no file"));
}

std::vector<std::string> ScopesOf(const Chip& chip) {
  return {chip.id(), chip.generation(), chip.vendor(), chip.kind() == Chip::TPU ? "TPU" : "GPU"};
}

// The key of a number of facts.csv, as "field value".
std::string FactKey(const std::string& field, double value) { return absl::StrCat(field, " ", value); }

TEST(FactsCsv, HasEveryNumberThatIsInNoColumn) {
  const std::vector<Row> facts = Table("facts.csv");
  std::set<size_t> used;
  for (const Chip& chip : ShippedChips()) {
    const std::vector<std::string> scopes = ScopesOf(chip);
    for (const ChipNumber& number : NumbersOf(chip)) {
      if (!number.number->column().empty()) continue;
      bool found = false;
      for (size_t i = 0; i < facts.size(); ++i) {
        const Row& fact = facts[i];
        if (fact.at("what") != "value" ||
            std::find(scopes.begin(), scopes.end(), fact.at("scope")) == scopes.end())
          continue;
        if (FactKey(fact.at("field"), std::atof(fact.at("value").c_str())) !=
            FactKey(number.path, number.number->value()))
          continue;
        EXPECT_EQ(fact.at("unit"), number.number->unit()) << chip.id() << " " << number.path;
        used.insert(i);
        found = true;
      }
      EXPECT_TRUE(found) << chip.id() << " " << number.path;
    }
  }
  for (size_t i = 0; i < facts.size(); ++i) {
    if (facts[i].at("what") != "value") continue;
    EXPECT_EQ(used.count(i), 1) << facts[i].at("scope") << " " << facts[i].at("field");
  }
}

TEST(FactsCsv, HasEveryRivalAndNoOther) {
  std::multiset<std::string> in_table, in_files;
  for (const Row& fact : Table("facts.csv")) {
    if (fact.at("what") != "rival") continue;
    in_table.insert(
        absl::StrCat(fact.at("scope"), " ", FactKey(fact.at("field"), std::atof(fact.at("value").c_str()))));
  }
  for (const Chip& chip : ShippedChips()) {
    for (const ChipNumber& number : NumbersOf(chip)) {
      for (const Chip::Rival& rival : number.number->rival())
        in_files.insert(absl::StrCat(chip.id(), " ", FactKey(number.path, rival.value())));
    }
  }
  EXPECT_EQ(in_table, in_files);
  EXPECT_GT(in_table.size(), 40);
}

// What the TPU compiler has opcodes for (cost/compiled/facts.textproto) is what the files call native, on
// every generation that it compiles for.
TEST(TypesCsv, AgreesWithTheCompiler) {
  std::ifstream file(std::string(TWINFORGE_SOURCE_DIR) + "/cost/compiled/facts.textproto");
  const std::pair<const char*, const char*> kTypes[] = {
      {"int8", "i8"}, {"e5m2", "f8_e5m2"}, {"e4m3", "f8_e4m3"}};
  int generations = 0;
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.find(" chip: \"");
    if (line.rfind("generation {", 0) != 0 || at == std::string::npos) continue;
    ++generations;
    const std::string id = line.substr(at + 8, line.find('"', at + 8) - at - 8);
    const Chip& chip = **FindIn(ShippedChips(), id);
    for (const auto& [compiler, ours] : kTypes) {
      bool native = false;
      for (const Chip::Peak& peak : chip.peak())
        native |= peak.dtype() == ours && peak.use() == Chip::Peak::ALONE;
      EXPECT_EQ(native, line.find(absl::StrCat("native: \"", compiler, "\"")) != std::string::npos)
          << id << " " << ours;
    }
  }
  EXPECT_EQ(generations, 5);
}

TEST(TypesCsv, HasEveryConversionAndMix) {
  std::set<std::string> used;
  const std::vector<Row> types = Table("types.csv");
  const auto key = [](const Row& row) {
    return absl::StrCat(row.at("scope"), " ", row.at("what"), " ", row.at("dtype"), " ", row.at("as"));
  };
  for (const Chip& chip : ShippedChips()) {
    const std::vector<std::string> scopes = ScopesOf(chip);
    std::set<std::string> want, have;
    for (const Row& row : types) {
      if (std::find(scopes.begin(), scopes.end(), row.at("scope")) == scopes.end()) continue;
      used.insert(key(row));
      if (row.at("what") == "converts") want.insert(row.at("dtype") + " to " + row.at("as"));
      if (row.at("what") == "native" || row.at("what") == "mixed") want.insert(row.at("dtype"));
      if (row.at("what") == "mix") want.insert("mix " + row.at("dtype"));
    }
    for (const Chip::Conversion& conversion : chip.conversion())
      have.insert(conversion.dtype() + " to " + conversion.as());
    for (const Chip::Peak& peak : chip.peak()) {
      if (peak.use() != Chip::Peak::PUBLISHED) have.insert(peak.dtype());
    }
    for (const Chip::Mix& mix : chip.mix()) {
      std::string dtypes = "mix";
      for (const std::string& dtype : mix.dtype()) absl::StrAppend(&dtypes, " ", dtype);
      have.insert(dtypes);
    }
    EXPECT_EQ(want, have) << chip.id();
  }
  for (const Row& row : types) EXPECT_EQ(used.count(key(row)), 1) << key(row) << ": a row that no chip uses";
}

}  // namespace
}  // namespace twinforge
