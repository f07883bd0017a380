// What a step takes, as far as measurements tell: the bound of each node with named constants on top.
//
//   R4 kernel    achievable rates, what does not overlap, activations' trips to memory
//   R5 network   exchanges between devices
//   R6 launch    starting kernels; the step's own share of scheduling and sampling
//   R7 power     a sustained clock below the published one: nothing is published, so nothing is charged
//   R8 batch     each sequence's own cost on the host; pages, buckets and uneven experts; bubbles of a
//   pipeline
//
// Each rung is at least the one before, since every constant adds. A constant is never below zero, so no
// estimate is below its bound.
#ifndef TWINFORGE_COST_ESTIMATE_H_
#define TWINFORGE_COST_ESTIMATE_H_

#include <array>
#include <vector>

#include "cost/calibration.h"
#include "cost/terms.h"

namespace twinforge {

inline constexpr int kEstimateRungs = 5;  // R4 to R8
using EstimateTimes = std::array<double, kEstimateRungs>;

// Seconds of one node at each rung, never decreasing.
EstimateTimes EstimateNode(const NodeTerms& node, const FittedConstants& fitted, const Constants& constants);

// What belongs to a step and to no node of it: the host, what stages hand on, a pipeline's bubbles. `scale`
// of its batch runs.
EstimateTimes EstimateRest(const StepTerms& terms, const FittedConstants& fitted, const Constants& constants,
                           double scale = 1);

// Sum over a step's nodes and the rest; `scale` of its batch runs (1: all of it).
double EstimateStep(const StepTerms& terms, const FittedConstants& fitted, const Constants& constants,
                    double scale = 1);

// One prompt's prefill on each group of devices.
double EstimatePrefill(const StepTerms& terms, const FittedConstants& fitted, const Constants& constants);

struct Interval {
  double low = 0, mid = 0, high = 0;
};
// mid / e^band to mid * e^band, and no less than `bound`.
Interval Band(double mid, double band, double bound);

}  // namespace twinforge

#endif  // TWINFORGE_COST_ESTIMATE_H_
