// Other views of a step's ladder: what each estimate's rung is worth, what stays without one constraint, and
// where the time of each kind of op is lost.
//
//   R5 network   5.02 ms to 6.91 ms, certifiable     doubt: link, exposed, weight_read
//   without R3 memory   1.9 ms of 5.9 ms stay        the removal view, a second opinion on the gaps of rungs
//   gated_mlp    R1/R0 4.01   R5/R1 9.80             the chip's own; what a better mapping could recover
//
// A rung's gap on the ladder depends on the rungs before it: memory hides what shape loses. The removal view
// takes one constraint from the last rung and leaves all others, so that what nothing else hides is seen.
#ifndef TWINFORGE_COST_VIEWS_H_
#define TWINFORGE_COST_VIEWS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cost/forecast.h"

namespace twinforge {

// Of an estimate's rung, R4 to R8.
struct RungView {
  std::string rung;   // "R4"
  Interval seconds;   // the step's 80 % band around this rung; the last one's is the step's own
  Interval envelope;  // every constant up to this rung at its low or high end at once
  std::vector<Doubt> doubts;
  bool certifiable = true;  // as Forecast's, of what moves this rung
};

struct Removal {
  std::string rung;  // of the constraint that is dropped: "R3"
  std::string name;
  double seconds = 0;  // of the step, all other constraints kept; at most the last rung
};

struct MappingGap {
  std::string op;                 // "gated_mlp"; "step" for all of them
  double r0 = 0, r1 = 0, r5 = 0;  // seconds
};

struct LadderViews {
  std::vector<RungView> rungs;
  std::vector<Removal> removals;  // R1 to R8
  std::vector<MappingGap> gaps;   // by seconds at R5, the whole step last
};

// `forecast`: of ForecastStep() with the same arguments, feasible.
absl::StatusOr<LadderViews> ViewsOf(const Forecast& forecast, const std::string& chip,
                                    const std::string& stack, const std::string& format);

}  // namespace twinforge

#endif  // TWINFORGE_COST_VIEWS_H_
