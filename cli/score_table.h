// A table of `score`: CSV whose columns are flags, a step for each row.
//
//   batch,mesh          rows.csv:3:1: --batch: "many" is no whole number from 1 to 16777216
//   8,tp=4              refused within its line of the answer; the other rows go on
//   many,tp=4
#ifndef TWINFORGE_CLI_SCORE_TABLE_H_
#define TWINFORGE_CLI_SCORE_TABLE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/csv.h"
#include "cli/score_request.h"

namespace twinforge {

// The file's table. TF1006 with line and column where it is none or has no rows; TF1003 for a column that is
// no flag of a row: all rows would be refused for it.
absl::StatusOr<CsvTable> ReadScoreTable(const std::string& path);

// `flags` with the row's cells in place of those they name. Columns are the flags' names, "-" or "_" between
// words; an empty cell leaves the flag. TF1003 for a cell that its flag would refuse, at the cell's place and
// by the flag's name. `config`: of --from-config.
absl::StatusOr<ScoreFlags> FlagsOfRow(ScoreFlags flags, const CsvTable& table, const CsvTable::Row& row,
                                      std::string& config);

// "rows.csv:3:1: --batch": the cell of the flag, or where the row begins if it has none.
std::string PlaceOfFlag(const CsvTable& table, const CsvTable::Row& row, absl::string_view flag);

}  // namespace twinforge

#endif  // TWINFORGE_CLI_SCORE_TABLE_H_
