// Tables as RFC 4180 writes them: a header, commas, quotes around cells that hold either.
//
//   batch,context          rows[0]["batch"] == "8"
//   8,"2,048"              table.PlaceOf(rows[0], 1) == "t.csv:2:3"
#ifndef TWINFORGE_BASE_CSV_H_
#define TWINFORGE_BASE_CSV_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace twinforge {

struct CsvTable {
  // Where a cell begins, both from 1. Columns count bytes.
  struct Place {
    int64_t line = 0;
    int64_t column = 0;
  };
  struct Row {
    int64_t line = 0;  // where it begins
    std::vector<std::string> cells;
    std::vector<Place> places = {};  // of the cells
  };
  std::string file;
  std::vector<std::string> columns;
  std::vector<Place> column_places;
  std::vector<Row> rows;

  // The column's number from 0, or -1.
  int Find(absl::string_view column) const;
  // "t.csv:2:3" of a cell, or of the row's beginning where `column` is none.
  std::string PlaceOf(const Row& row, int column) const;
  // The cell, or "" where there is no such column.
  const std::string& Get(const Row& row, absl::string_view column) const;
};

// TF1006 at line and column of `file`: a quote that never closes or stands inside a cell, a row with other
// than the header's number of cells, a column named twice or not at all.
absl::StatusOr<CsvTable> ParseCsv(absl::string_view text, absl::string_view file);

}  // namespace twinforge

#endif  // TWINFORGE_BASE_CSV_H_
