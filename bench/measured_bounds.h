// Every published measurement that a bound speaks of, beside that bound.
//
// A row that says too little (no model's config, no shape) is left away with a reason; one that a bound
// exceeds is a violation: of the row's own words, or of ours.
#ifndef TWINFORGE_BENCH_MEASURED_BOUNDS_H_
#define TWINFORGE_BENCH_MEASURED_BOUNDS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace twinforge {

struct BoundedRow {
  std::string id, what;  // "decode", "prefill", "gemm", "attention", "memory", "serve"
  double measured = 0;   // seconds
  double bound = 0;
  std::string note;  // the row's own
  bool violated() const { return measured < bound; }
};

struct BoundedRows {
  std::vector<BoundedRow> rows;
  std::vector<std::pair<std::string, std::string>> left;  // id and reason
};

// Of datapoints_calibration.csv, all splits.
absl::StatusOr<BoundedRows> ReadBoundedRows(const std::string& folder);

}  // namespace twinforge

#endif  // TWINFORGE_BENCH_MEASURED_BOUNDS_H_
