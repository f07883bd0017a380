#include "cost/estimate.h"

#include <algorithm>
#include <cmath>

namespace twinforge {
namespace {

double Longer(double a, double b, double exposed) { return std::max(a, b) + exposed * std::min(a, b); }

}  // namespace

EstimateTimes EstimateNode(const NodeTerms& node, const FittedConstants& fitted, const Constants& constants) {
  const auto of = [&](Constant constant) { return Of(constants, constant); };
  const Constant matmul = node.experts ? Constant::kExpertMatmul : Constant::kMatmul;
  const Constant read = node.experts ? Constant::kExpertRead : Constant::kWeightRead;
  const double exposed = of(Constant::kExposed);
  EstimateTimes times{};
  times[0] = Longer(node.kernels * (1 + of(matmul) * fitted.matmul_excess),
                    node.weight_read * (1 + of(read) * fitted.memory_excess), exposed) +
             Longer(node.attention * (1 + of(Constant::kAttention) * fitted.matmul_excess),
                    node.cache_read * (1 + of(Constant::kCacheRead) * fitted.memory_excess), exposed) +
             node.vector * of(Constant::kVector);
  times[1] = times[0] + node.exchange * (1 + of(Constant::kLink)) + node.messages * of(Constant::kMessage);
  times[2] = times[1] + (node.launches ? of(Constant::kLaunch) : 0) +
             (node.experts ? of(Constant::kExpertLaunch) : 0);
  times[3] = times[2];
  times[4] = times[3];
  return times;
}

EstimateTimes EstimateRest(double sequences, const Constants& constants) {
  const double step = Of(constants, Constant::kStep);
  return {0, 0, step, step, step + sequences * Of(constants, Constant::kRequest)};
}

double EstimateStep(const StepTerms& terms, const FittedConstants& fitted, const Constants& constants,
                    double scale) {
  double seconds = EstimateRest(scale * terms.hosted, constants)[kEstimateRungs - 1];
  for (size_t i = 0; i < terms.kinds.size(); ++i) {
    NodeTerms node = terms.kinds[i];
    for (double* of_batch : {&node.kernels, &node.attention, &node.cache_read, &node.vector, &node.exchange})
      *of_batch *= scale;
    seconds += static_cast<double>(terms.uses[i]) * EstimateNode(node, fitted, constants)[kEstimateRungs - 1];
  }
  return seconds;
}

double EstimatePrefill(const StepTerms& terms, const FittedConstants& fitted, const Constants& constants) {
  double seconds = static_cast<double>(terms.sequences) * Of(constants, Constant::kPrompt);
  for (size_t i = 0; i < terms.kinds.size(); ++i) {
    seconds += static_cast<double>(terms.uses[i]) *
               EstimateNode(terms.kinds[i], fitted, constants)[kEstimateRungs - 1];
  }
  return seconds;
}

Interval Band(double mid, double band, double bound) {
  return {std::max(bound, mid * std::exp(-band)), std::max(bound, mid),
          std::max(bound, mid * std::exp(band))};
}

}  // namespace twinforge
