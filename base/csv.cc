#include "base/csv.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/status_macros.h"

namespace twinforge {
namespace {

class Reader {
 public:
  Reader(absl::string_view text, absl::string_view place) : text_(text), place_(place) {}

  bool done() const { return at_ >= text_.size(); }

  absl::StatusOr<CsvTable::Row> Row() {
    CsvTable::Row row{.line = line_};
    for (;;) {
      row.places.push_back(Here());
      TWIN_ASSIGN_OR_RETURN(std::string cell, Cell());
      row.cells.push_back(std::move(cell));
      if (done()) return row;
      if (text_[at_] == ',') {
        ++at_;
        continue;
      }
      EndLine();
      return row;
    }
  }

  absl::Status FailAt(const CsvTable::Place& at, absl::string_view what) const {
    return Error(1006, absl::StrCat(place_, ":", at.line, ":", at.column), what);
  }
  absl::Status Fail(absl::string_view what) const { return FailAt(Here(), what); }

 private:
  CsvTable::Place Here() const { return {line_, static_cast<int64_t>(at_ - line_begin_) + 1}; }

  bool AtEnd() const { return done() || text_[at_] == ',' || text_[at_] == '\n' || text_[at_] == '\r'; }

  void EndLine() {
    if (text_[at_] == '\r') ++at_;
    if (!done() && text_[at_] == '\n') ++at_;
    ++line_;
    line_begin_ = at_;
  }

  absl::StatusOr<std::string> Cell() {
    if (done() || text_[at_] != '"') {
      const size_t begin = at_;
      while (!AtEnd()) {
        if (text_[at_] == '"') return Fail("a quote inside a cell that does not begin with one");
        ++at_;
      }
      return std::string(text_.substr(begin, at_ - begin));
    }
    return Quoted();
  }

  absl::StatusOr<std::string> Quoted() {
    std::string cell;
    const absl::Status open = Fail("this quote is never closed");
    for (++at_;; ++at_) {
      if (done()) return open;
      if (text_[at_] == '\n') {
        ++line_;
        line_begin_ = at_ + 1;
      }
      if (text_[at_] != '"') {
        cell.push_back(text_[at_]);
        continue;
      }
      if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
        cell.push_back(text_[++at_]);
        continue;
      }
      ++at_;
      if (!AtEnd()) return Fail("a cell goes on after its closing quote");
      return cell;
    }
  }

  absl::string_view text_;
  absl::string_view place_;
  size_t at_ = 0;
  size_t line_begin_ = 0;
  int64_t line_ = 1;
};

}  // namespace

int CsvTable::Find(absl::string_view column) const {
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i] == column) return static_cast<int>(i);
  }
  return -1;
}

std::string CsvTable::PlaceOf(const Row& row, int column) const {
  const bool known = column >= 0 && column < static_cast<int>(row.places.size());
  const Place place = known ? row.places[column] : Place{row.line, 1};
  return absl::StrCat(file, ":", place.line, ":", place.column);
}

const std::string& CsvTable::Get(const Row& row, absl::string_view column) const {
  static const std::string& none = *new std::string;
  const int at = Find(column);
  return at < 0 ? none : row.cells[at];
}

absl::StatusOr<CsvTable> ParseCsv(absl::string_view text, absl::string_view file) {
  // What spreadsheets put before the first column.
  absl::ConsumePrefix(&text, "\xEF\xBB\xBF");
  Reader reader(text, file);
  TWIN_ASSIGN_OR_RETURN(CsvTable::Row header, reader.Row());
  CsvTable table{.file = std::string(file.data(), file.size()),
                 .columns = std::move(header.cells),
                 .column_places = std::move(header.places)};
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const std::string& column = table.columns[i];
    if (column.empty())
      return reader.FailAt(table.column_places[i], absl::StrCat("column ", i + 1, " has no name"));
    if (table.Find(column) != static_cast<int>(i))
      return reader.FailAt(table.column_places[i],
                           absl::StrCat("column ", JsonQuoted(column, 100), " is named twice"));
  }
  while (!reader.done()) {
    TWIN_ASSIGN_OR_RETURN(CsvTable::Row row, reader.Row());
    if (row.cells.size() == 1 && row.cells[0].empty()) continue;  // a line left empty
    if (row.cells.size() != table.columns.size()) {
      // The first cell too many, or the last one before those that are missing.
      return reader.FailAt(
          row.places[std::min(row.cells.size() - 1, table.columns.size())],
          absl::StrCat(row.cells.size(), " cells in a table of ", table.columns.size(), " columns"));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace twinforge
