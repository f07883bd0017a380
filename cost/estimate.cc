#include "cost/estimate.h"

#include <algorithm>
#include <cmath>
#include <memory>

namespace twinforge {
namespace {

double Longer(double a, double b, double exposed) { return std::max(a, b) + exposed * std::min(a, b); }

// R4, R5 and R6.
std::array<double, 3> Unpadded(const NodeTerms& node, const FittedConstants& fitted,
                               const Constants& constants) {
  const auto of = [&](Constant constant) { return Of(constants, constant); };
  const Constant matmul = node.experts ? Constant::kExpertMatmul : Constant::kMatmul;
  const Constant read = node.experts ? Constant::kExpertRead : Constant::kWeightRead;
  const double exposed = of(Constant::kExposed);
  std::array<double, 3> times{};
  times[0] = Longer(node.kernels * (1 + of(matmul) * fitted.matmul_excess),
                    node.weight_read * (1 + of(read) * fitted.memory_excess), exposed) +
             Longer(node.attention * (1 + of(Constant::kAttention) * fitted.matmul_excess),
                    node.cache_read * (1 + of(Constant::kCacheRead) * fitted.memory_excess), exposed) +
             node.vector * of(Constant::kVector);
  times[1] = times[0] + node.exchange * (1 + of(Constant::kLink)) + node.messages * of(Constant::kMessage);
  times[2] = times[1] + (node.launches ? of(Constant::kLaunch) : 0) +
             (node.experts ? of(Constant::kExpertLaunch) : 0);
  return times;
}

// With `scale` of the step's batch running.
NodeTerms ScaledTerms(NodeTerms node, double scale) {
  for (double* of_batch : {&node.kernels, &node.attention, &node.cache_read, &node.vector, &node.exchange})
    *of_batch *= scale;
  if (node.padded != nullptr && scale != 1)
    node.padded = std::make_shared<NodeTerms>(ScaledTerms(*node.padded, scale));
  return node;
}

// Seconds of a node at the last rung.
double LastRung(const NodeTerms& node, const FittedConstants& fitted, const Constants& constants,
                double scale) {
  if (scale == 1) return EstimateNode(node, fitted, constants)[kEstimateRungs - 1];
  return EstimateNode(ScaledTerms(node, scale), fitted, constants)[kEstimateRungs - 1];
}

// Beyond what the stages' passes add up to. A step alone has all microbatches follow the first through the
// slowest stage; steps that follow each other overlap, but a sequence's next token waits for its last one.
double Bubble(const StepTerms& terms, const FittedConstants& fitted, const Constants& constants,
              double scale) {
  if (terms.stages.size() == 1) return 0;
  double way = 0, slowest = 0, counted = 0;
  for (const StageTerms& stage : terms.stages) {
    double seconds = 0;
    for (size_t i = 0; i < terms.kinds.size(); ++i) {
      if (stage.uses[i] == 0) continue;
      seconds += static_cast<double>(stage.uses[i]) * LastRung(terms.kinds[i], fitted, constants, scale);
    }
    way += seconds;
    slowest = std::max(slowest, seconds);
    counted += static_cast<double>(stage.passes) * seconds;
  }
  const double parts = static_cast<double>(terms.microbatches);
  const double taken = terms.alone ? way + (parts - 1) * slowest : std::max(way, parts * slowest);
  return std::max(0.0, taken - counted);
}

}  // namespace

EstimateTimes EstimateNode(const NodeTerms& node, const FittedConstants& fitted, const Constants& constants) {
  const std::array<double, 3> own = Unpadded(node, fitted, constants);
  const double padded =
      node.padded == nullptr ? own[2] : std::max(own[2], Unpadded(*node.padded, fitted, constants)[2]);
  return {own[0], own[1], own[2], own[2], padded};
}

EstimateTimes EstimateRest(const StepTerms& terms, const FittedConstants& fitted, const Constants& constants,
                           double scale) {
  // Hand-overs on the way that is counted: between all stages, or those of the slowest one.
  double passes = 0;
  for (const StageTerms& stage : terms.stages) passes += static_cast<double>(stage.passes);
  const bool every = terms.stages.size() > 1 && terms.stages.front().passes == terms.stages.back().passes;
  const double sends = terms.stages.size() == 1 ? 0 : every ? passes - 1 : passes;
  const double network = sends * (scale * terms.send * (1 + Of(constants, Constant::kLink)) +
                                  terms.send_hops * Of(constants, Constant::kMessage));
  const double step = network + Of(constants, Constant::kStep);
  const double batch = step + scale * terms.hosted * Of(constants, Constant::kRequest);
  return {0, network, step, step, batch + Bubble(terms, fitted, constants, scale)};
}

double EstimateStep(const StepTerms& terms, const FittedConstants& fitted, const Constants& constants,
                    double scale) {
  double seconds = EstimateRest(terms, fitted, constants, scale)[kEstimateRungs - 1];
  for (size_t i = 0; i < terms.kinds.size(); ++i) {
    seconds += static_cast<double>(terms.uses[i]) * LastRung(terms.kinds[i], fitted, constants, scale);
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
