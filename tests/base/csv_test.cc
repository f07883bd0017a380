#include "base/csv.h"

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/diagnostic.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace twinforge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Diagnostic Refusal(absl::string_view text) {
  const absl::Status status = ParseCsv(text, "t.csv").status();
  EXPECT_TRUE(DiagnosticOf(status).has_value()) << status << " for " << std::string(text);
  return DiagnosticOf(status).value_or(Diagnostic());
}

TEST(Csv, CellsAreFoundByColumn) {
  const absl::StatusOr<CsvTable> table = ParseCsv("batch,context\n8,\"2,048\"\n16,\n", "t.csv");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(table->columns, ElementsAre("batch", "context"));
  ASSERT_EQ(table->rows.size(), 2u);
  EXPECT_EQ(table->Get(table->rows[0], "context"), "2,048");
  EXPECT_EQ(table->Get(table->rows[1], "context"), "");
  EXPECT_EQ(table->Get(table->rows[1], "chip"), "") << "no such column";
  EXPECT_EQ(table->Find("context"), 1);
  EXPECT_EQ(table->Find("chip"), -1);
}

TEST(Csv, AMarkThatSpreadsheetsWriteIsNoPartOfTheFirstColumn) {
  const absl::StatusOr<CsvTable> table = ParseCsv(
      "\xEF\xBB\xBF"
      "chip,batch\nv6e,8\n",
      "t.csv");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->Get(table->rows[0], "chip"), "v6e");
}

TEST(Csv, LinesEndInAnyWayAndTheLastNeedNot) {
  for (const char* text :
       {"a,b\n1,2\n3,4\n", "a,b\r\n1,2\r\n3,4\r\n", "a,b\r1,2\r3,4", "a,b\n\n1,2\n\n3,4"}) {
    const absl::StatusOr<CsvTable> table = ParseCsv(text, "t.csv");
    ASSERT_TRUE(table.ok()) << table.status();
    ASSERT_EQ(table->rows.size(), 2u) << text;
    EXPECT_THAT(table->rows[0].cells, ElementsAre("1", "2"));
    EXPECT_THAT(table->rows[1].cells, ElementsAre("3", "4"));
  }
}

TEST(Csv, RowsKnowTheLineTheyBeginOn) {
  const absl::StatusOr<CsvTable> table = ParseCsv("a,b\n\"1\n1\",2\n\n3,4\n", "t.csv");
  ASSERT_TRUE(table.ok()) << table.status();
  ASSERT_EQ(table->rows.size(), 2u);
  EXPECT_EQ(table->rows[0].line, 2);
  EXPECT_EQ(table->rows[0].cells[0], "1\n1");
  EXPECT_EQ(table->rows[1].line, 5);
}

TEST(Csv, CellsKnowTheirPlaces) {
  const absl::StatusOr<CsvTable> table = ParseCsv("a,b\n\"1\n1\",2\n\"x\"\"y\",\n", "t.csv");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->PlaceOf(table->rows[0], 0), "t.csv:2:1");
  EXPECT_EQ(table->PlaceOf(table->rows[0], 1), "t.csv:3:4") << "the cell before holds a line";
  EXPECT_EQ(table->PlaceOf(table->rows[1], 1), "t.csv:4:8");
  EXPECT_EQ(table->PlaceOf(table->rows[1], -1), "t.csv:4:1") << "no such column: where the row begins";
}

TEST(Csv, WhatIsMalformedIsRefusedAtItsPlace) {
  EXPECT_EQ(Refusal("a,b\n1,\"2").place, "t.csv:2:3") << "where the quote opens";
  EXPECT_THAT(Refusal("a,b\n1,\"2").message, HasSubstr("never closed"));
  EXPECT_EQ(Refusal("a,b\n1,2\"3\n").place, "t.csv:2:4");
  EXPECT_EQ(Refusal("a,b\n1,\"2\"3\n").place, "t.csv:2:6");
  EXPECT_EQ(Refusal("a,b\n1\n").place, "t.csv:2:1") << "the last cell there is";
  EXPECT_EQ(Refusal("a,b\n1,2,\"3\",4\n").place, "t.csv:2:5") << "the first too many";
  EXPECT_EQ(Refusal("a,b\n\"1\n\n\",2,3").place, "t.csv:4:5");
  EXPECT_EQ(Refusal("a,b,a\n").place, "t.csv:1:5");
  EXPECT_EQ(Refusal("a,,b\n").place, "t.csv:1:3");
  EXPECT_THAT(Refusal("a,b\n1,2,3\n").message, HasSubstr("3 cells in a table of 2 columns"));
  EXPECT_THAT(Refusal("a,a\n").message, HasSubstr("named twice"));
  EXPECT_THAT(Refusal("a,\n").message, HasSubstr("column 2 has no name"));
  EXPECT_THAT(Refusal("").message, HasSubstr("column 1 has no name"));
  for (const char* text :
       {"a,b\n1,\"2", "a,b\n1,2\"3\n", "a\n\"1\"2", "a,b\n1\n", "a,a\n", "a,\n", "", "\n1"}) {
    EXPECT_EQ(Refusal(text).code, 1006) << text;
  }
}

// A law: any table, written with all of its cells quoted, is read as it was.
TEST(Csv, EveryTableComesBack) {
  std::mt19937_64 random(7);
  constexpr char kBytes[] = "a1,\"\n\r \xff";
  for (int i = 0; i < 2000; ++i) {
    const size_t width = 1 + random() % 4;
    std::vector<std::string> columns;
    for (size_t c = 0; c < width; ++c) columns.push_back(absl::StrCat("c", c));
    std::vector<std::vector<std::string>> rows(random() % 5);
    std::string text = absl::StrJoin(columns, ",") + "\n";
    for (std::vector<std::string>& row : rows) {
      std::vector<std::string> quoted;
      for (size_t c = 0; c < width; ++c) {
        std::string cell = width == 1 ? "x" : "";  // a row of nothing but one empty cell is an empty line
        for (uint64_t n = random() % 6; n > 0; --n) cell.push_back(kBytes[random() % (sizeof(kBytes) - 1)]);
        quoted.push_back(absl::StrCat("\"", absl::StrReplaceAll(cell, {{"\"", "\"\""}}), "\""));
        row.push_back(cell);
      }
      absl::StrAppend(&text, absl::StrJoin(quoted, ","), "\n");
    }
    const absl::StatusOr<CsvTable> table = ParseCsv(text, "t.csv");
    ASSERT_TRUE(table.ok()) << table.status() << "\n" << text;
    ASSERT_EQ(table->rows.size(), rows.size()) << text;
    for (size_t r = 0; r < rows.size(); ++r) ASSERT_EQ(table->rows[r].cells, rows[r]) << text;
  }
}

}  // namespace
}  // namespace twinforge
