#include "cli/score_table.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/diagnostic.h"
#include "base/file.h"
#include "base/json_reader.h"
#include "base/status_macros.h"

namespace twinforge {
namespace {

// Cells that are words; some are words of a list.
struct WordColumn {
  absl::string_view name;
  std::string ScoreFlags::*field;  // null: --from-config
  absl::string_view among;
};
constexpr WordColumn kWords[] = {
    {"chip", &ScoreFlags::chip, ""},
    {"phase", &ScoreFlags::phase, "prefill decode mixed serve train"},
    {"routing", &ScoreFlags::routing, "same spread expected"},
    {"mesh", &ScoreFlags::mesh, ""},
    {"dtype", &ScoreFlags::dtype, ""},
    {"activation-dtype", &ScoreFlags::activation_dtype, ""},
    {"kv-dtype", &ScoreFlags::kv_dtype, ""},
    {"stack", &ScoreFlags::stack, ""},
    {"from-config", nullptr, ""},
};

std::string FlagOf(const std::string& column) { return "--" + absl::StrReplaceAll(column, {{"_", "-"}}); }

const WordColumn* FindWord(const std::string& flag) {
  for (const WordColumn& word : kWords) {
    if (absl::StrCat("--", word.name) == flag) return &word;
  }
  return nullptr;
}

const ScoreNumber* FindNumber(const std::string& flag) {
  for (const ScoreNumber& number : ScoreNumbers()) {
    if (number.flag == flag) return &number;
  }
  return nullptr;
}

// Digits alone: what the command line takes for a number.
bool ReadNumber(const std::string& text, const ScoreNumber& number, int64_t& value) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos &&
         absl::SimpleAtoi(text, &value) && value >= number.least && value <= number.most;
}

absl::Status SetCell(const std::string& flag, const std::string& cell, const std::string& place,
                     ScoreFlags& flags, std::string& config) {
  if (const ScoreNumber* number = FindNumber(flag)) {
    if (ReadNumber(cell, *number, *number->field(flags))) return absl::OkStatus();
    return Error(1003, place,
                 absl::StrCat(JsonQuoted(cell, 100), " is no whole number from ", number->least, " to ",
                              number->most));
  }
  const WordColumn& word = *FindWord(flag);
  (word.field == nullptr ? config : flags.*word.field) = cell;
  const std::vector<std::string> among = absl::StrSplit(word.among, ' ', absl::SkipEmpty());
  if (among.empty() || std::find(among.begin(), among.end(), cell) != among.end()) return absl::OkStatus();
  return Error(1003, place, absl::StrCat(JsonQuoted(cell, 100), " is unknown"),
               absl::StrCat("one of ", absl::StrJoin(among, ", ")));
}

absl::Status CheckColumns(const CsvTable& table) {
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const std::string flag = FlagOf(table.columns[i]);
    if (FindWord(flag) != nullptr || FindNumber(flag) != nullptr) continue;
    std::vector<std::string> known;
    for (const WordColumn& word : kWords) known.push_back(absl::StrCat("--", word.name));
    for (const ScoreNumber& number : ScoreNumbers()) known.push_back(std::string(number.flag));
    const std::string nearest = Nearest(flag, known);
    return Error(1003, table.PlaceOf({.line = 1, .places = table.column_places}, static_cast<int>(i)),
                 absl::StrCat(JsonQuoted(table.columns[i], 100), " is no flag that a row may have"),
                 nearest.empty() ? absl::StrCat("columns are named like ", absl::StrJoin(known, ", "))
                                 : absl::StrCat("did you mean ", nearest.substr(2), "?"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CsvTable> ReadScoreTable(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadTextFile(path);
  // A file that is no table is a mistake on the command line, not a damaged checkpoint.
  if (!text.ok() && ExitCodeOf(text.status()) == ExitCode::kCorrupt)
    return Error(1006, absl::StrCat(path, ":1:1"), DiagnosticOf(text.status())->message);
  TWIN_RETURN_IF_ERROR(text.status());
  TWIN_ASSIGN_OR_RETURN(CsvTable table, ParseCsv(*text, path));
  TWIN_RETURN_IF_ERROR(CheckColumns(table));
  if (table.rows.empty())
    return Error(1006, absl::StrCat(path, ":2:1"), "has no rows", "write one below the header for each step");
  return table;
}

absl::StatusOr<ScoreFlags> FlagsOfRow(ScoreFlags flags, const CsvTable& table, const CsvTable::Row& row,
                                      std::string& config) {
  flags.given.clear();
  for (size_t i = 0; i < row.cells.size(); ++i) {
    if (row.cells[i].empty()) continue;
    const std::string flag = FlagOf(table.columns[i]);
    const std::string place = absl::StrCat(table.PlaceOf(row, static_cast<int>(i)), ": ", flag);
    TWIN_RETURN_IF_ERROR(SetCell(flag, row.cells[i], place, flags, config));
    flags.given.push_back(flag);
  }
  return flags;
}

std::string PlaceOfFlag(const CsvTable& table, const CsvTable::Row& row, absl::string_view flag) {
  int at = -1;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    if (FlagOf(table.columns[i]) == flag) at = static_cast<int>(i);
  }
  return absl::StrCat(table.PlaceOf(row, at), ": ", flag);
}

}  // namespace twinforge
