// Published measurements as rows that constants are fitted on and that estimates are held against.
//
// Reads the tables of a data folder (docs/cost.md names them): serving rows of GPUs, decode steps and kernels
// of TPUs. What a row does not say is not guessed: such rows are left away with a reason.
#ifndef TWINFORGE_BENCH_MEASURED_ROWS_H_
#define TWINFORGE_BENCH_MEASURED_ROWS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cost/calibration_fit.h"

namespace twinforge {

struct MeasuredRows {
  std::vector<FitRow> rows;
  std::vector<std::pair<std::string, std::string>> left;  // id and reason
  std::string hashes;                                     // of the tables, for the record
};

// `folder` holds silicon_gpu_calibration.csv, datapoints_calibration.csv and model_configs.json.
absl::StatusOr<MeasuredRows> ReadMeasuredRows(const std::string& folder, const Calibration& priors);

}  // namespace twinforge

#endif  // TWINFORGE_BENCH_MEASURED_ROWS_H_
