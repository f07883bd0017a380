// Tables of published measurements, cell by cell, and the graphs of the models that they name.
#ifndef TWINFORGE_BENCH_MEASURED_TABLE_H_
#define TWINFORGE_BENCH_MEASURED_TABLE_H_

#include <algorithm>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "base/csv.h"
#include "ir/graph.h"

namespace twinforge {

// Graphs by model name, from the text of model_configs.json; each made once.
class Models {
 public:
  explicit Models(const std::string& configs);
  absl::StatusOr<const Graph*> Find(const std::string& name);

 private:
  std::map<std::string, std::string> configs_;
  std::map<std::string, Graph> graphs_;
};

// The same layers under the name that has a config.
std::string Canonical(absl::string_view name);

struct Cell {
  const CsvTable& table;
  const CsvTable::Row& row;
  const std::string& Text(absl::string_view column) const { return table.Get(row, column); }
  double Number(absl::string_view column) const {
    double value = 0;
    return absl::SimpleAtod(Text(column), &value) ? value : 0;
  }
  int64_t Count(absl::string_view column) const {
    return std::max<int64_t>(1, static_cast<int64_t>(Number(column)));
  }
};

}  // namespace twinforge

#endif  // TWINFORGE_BENCH_MEASURED_TABLE_H_
