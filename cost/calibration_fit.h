// One command's work: the constants that measured rows speak for, none of them set by hand.
//
// Each constant is exp(base + the sum of its scopes' deltas): scopes are an engine, a generation, a format,
// and all three together, so that what was never measured together is composed of what was. Deltas are drawn
// towards zero. The sum of absolute relative errors is made small (Huber's loss, by damped Gauss-Newton
// steps); a partition counts at most as sixty rows, so that no table drowns another.
#ifndef TWINFORGE_COST_CALIBRATION_FIT_H_
#define TWINFORGE_COST_CALIBRATION_FIT_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "cost/serve.h"

namespace twinforge {

// A measurement, as the bounds of what was measured.
struct FitRow {
  enum class Kind : uint8_t { kServe, kStep };
  std::string id;
  std::string partition;  // chip, format, engine and model: errors are shown for each
  std::string table;      // rows that differ in the number of clients alone have one
  std::string choices;    // rows that differ in the parallelism too have one: what an operator chooses from
  std::string family, stack, generation, format;
  Kind kind = Kind::kServe;
  ServingTerms serving;  // kStep: `decode` alone
  FittedConstants chip;  // its measured excesses
  double seconds = 0;    // TPOT, or of the step
  double first_token = 0;
  int64_t devices = 1;
  double clients = 0;
};

// Above the speed of light, or at odds with another row of its table: the row's reason, or "" for a sound
// one.
std::vector<std::string> Quarantine(absl::Span<const FitRow> rows);

// Bases and factors; the rest as in `priors`. Rows of one order give the same constants.
Calibration FitConstants(const Calibration& priors, absl::Span<const FitRow> rows);

// Seconds of TPOT or step, and to the first token, as `calibration` estimates them.
struct Predicted {
  double seconds = 0;
  double first_token = 0;
};
Predicted Predict(const Calibration& calibration, const FitRow& row);

// Which fifth of the rows a row is in: by its id's hash, so that a row added moves no other.
int FoldOf(absl::string_view id);

}  // namespace twinforge

#endif  // TWINFORGE_COST_CALIBRATION_FIT_H_
