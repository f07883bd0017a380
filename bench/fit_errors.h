// How far estimates are off: in the fit, and of rows that were not fitted on.
#ifndef TWINFORGE_BENCH_FIT_ERRORS_H_
#define TWINFORGE_BENCH_FIT_ERRORS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "cost/calibration_fit.h"

namespace twinforge {

double Quantile(std::vector<double> values, double q);

// An estimate of a row by constants that were fitted without it.
struct HeldOut {
  const FitRow* row = nullptr;
  Predicted folded;     // without the row's fifth
  Predicted left;       // without the row's partition
  double baseline = 0;  // by three constants of the partition's other fifths; 0: too few rows
  double in_fit = 0;
};

// Each row once, in their order: five fits for the fifths, one for each partition. `left`: whether to make
// those.
std::vector<HeldOut> HoldOut(const Calibration& priors, const Calibration& fitted,
                             absl::Span<const FitRow> rows, bool left = true);

// Relative errors of one partition, or of several: absolute values of estimate over measurement, less one.
struct Errors {
  std::vector<double> fitted, folded, left, baseline;
  std::vector<double> folded_log, first_log, left_log, left_first_log;
  void Add(const HeldOut& held);
};

std::string ScopeOf(const FitRow& row);  // "gpu/vllm/sm_90/fp8": rows that have a band of their own
bool IsDense(const FitRow& row);
void PrintErrors(absl::Span<const HeldOut> held);  // a table in Markdown, a line for each partition

}  // namespace twinforge

#endif  // TWINFORGE_BENCH_FIT_ERRORS_H_
