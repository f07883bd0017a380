// How far an estimate may be off, and by which constant: of a whole step, of an engine, of one rung.
#ifndef TWINFORGE_COST_DOUBT_H_
#define TWINFORGE_COST_DOUBT_H_

#include <functional>
#include <vector>

#include "cost/calibration.h"
#include "cost/estimate.h"

namespace twinforge {

// Standard deviations to either side of the middle of a normal distribution.
inline constexpr double kFourInFive = 1.2816;
inline constexpr double kNinetyNine = 2.5758;

// Seconds of what is estimated, under other constants.
using SecondsUnder = std::function<double(const Constants&)>;

// How much of the estimate's uncertainty each constant brings, largest first; shares add up to one.
struct Doubt {
  Constant constant;
  double share;
};

// Each constant moved by its spread, the others in the middle: what that does to `seconds_of`, as shares.
std::vector<Doubt> DoubtsOf(const FittedConstants& fitted, const SecondsUnder& seconds_of);

// Every constant at its low or high end at once. Nodes at their bounds count with those, as in the ladder
// whose rung is `mid`.
Interval EnvelopeOf(const FittedConstants& fitted, const SecondsUnder& seconds_of, double mid, double bound);

// Whether less than half of the doubt comes from constants that no row speaks for.
bool IsCertifiable(const FittedConstants& fitted, const std::vector<Doubt>& doubts);

}  // namespace twinforge

#endif  // TWINFORGE_COST_DOUBT_H_
