// Tables as RFC 4180 writes them: a header, commas, quotes around cells that hold either.
//
//   batch,context          rows[0]["batch"] == "8"
//   8,"2,048"              rows[0].line == 2
#ifndef TWINFORGE_BASE_CSV_H_
#define TWINFORGE_BASE_CSV_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace twinforge {

struct CsvTable {
  struct Row {
    int64_t line = 0;  // where it begins
    std::vector<std::string> cells;
  };
  std::vector<std::string> columns;
  std::vector<Row> rows;

  // The column's place, or -1.
  int Find(absl::string_view column) const;
  // The cell, or "" where there is no such column.
  const std::string& Get(const Row& row, absl::string_view column) const;
};

// TF1206 at line and column of `place`: a quote that never closes or stands inside a cell, a row with other
// than the header's number of cells, a column named twice or not at all.
absl::StatusOr<CsvTable> ParseCsv(absl::string_view text, absl::string_view place);

}  // namespace twinforge

#endif  // TWINFORGE_BASE_CSV_H_
