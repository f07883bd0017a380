#include "cost/gain.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cost/chip_file.h"

namespace twinforge {
namespace {

constexpr size_t kFirstEstimate = 4;  // R4

// Sums over a step at R4 to R8.
EstimateTimes RungsOf(const StepTerms& terms, const FittedConstants& fitted, const Constants& constants) {
  EstimateTimes sums = EstimateRest(terms, fitted, constants);
  for (size_t i = 0; i < terms.kinds.size(); ++i) {
    const EstimateTimes node = EstimateNode(terms.kinds[i], fitted, constants);
    for (int rung = 0; rung < kEstimateRungs; ++rung)
      sums[rung] += static_cast<double>(terms.uses[i]) * node[rung];
  }
  return sums;
}

std::vector<double> StepsOf(const Score& score) {
  std::vector<double> steps;
  double before = 0;
  for (const RungRow& rung : score.ladder) {
    steps.push_back(rung.seconds - before);
    before = rung.seconds;
  }
  return steps;
}

}  // namespace

absl::StatusOr<StepGain::Side> StepGain::SideOf(const Graph& graph, const Graph* useful,
                                                const std::string& chip, const Workload& workload,
                                                const std::string& stack, const std::string& format) {
  Side side;
  TWIN_ASSIGN_OR_RETURN(side.forecast, ForecastStep(graph, useful, chip, workload, stack, format));
  side.terms = side.forecast.terms;
  return side;
}

absl::StatusOr<StepGain> StepGain::Of(const Graph& source, const Graph& twin, const std::string& chip,
                                      const Workload& workload, const std::string& stack,
                                      const std::string& format) {
  StepGain gain;
  TWIN_ASSIGN_OR_RETURN(gain.source_, SideOf(source, nullptr, chip, workload, stack, format));
  TWIN_ASSIGN_OR_RETURN(gain.twin_, SideOf(twin, &source, chip, workload, stack, format));
  TWIN_ASSIGN_OR_RETURN(const Chip* file, FindIn(ShippedChips(), chip));
  gain.fitted_ = ConstantsFor(ShippedCalibration(), stack, *file, format);
  for (int i = 0; i < kConstants; ++i) {
    const absl::string_view name = AllConstants()[i].name;
    gain.knobs_.push_back(
        {std::string(name.data(), name.size()), gain.fitted_.spread[i], gain.fitted_.assumed[i]});
  }
  for (int i = 0; i < kEstimateRungs; ++i) {
    gain.knobs_.push_back({absl::StrCat("unexplained R", kFirstEstimate + i), gain.fitted_.band / kFourInFive,
                           !gain.fitted_.seen});
  }
  std::array<double, kEstimateRungs> ones;
  ones.fill(1);
  gain.log_mid_ = std::log(gain.Seconds(gain.source_, gain.fitted_.mid, ones) /
                           gain.Seconds(gain.twin_, gain.fitted_.mid, ones));
  return gain;
}

double StepGain::Seconds(const Side& side, const Constants& constants,
                         const std::array<double, kEstimateRungs>& steps) const {
  const EstimateTimes rungs = RungsOf(side.terms, fitted_, constants);
  double seconds = side.forecast.bound;
  double before = seconds;
  for (int i = 0; i < kEstimateRungs; ++i) {
    seconds += steps[i] * std::max(0.0, rungs[i] - before);
    before = std::max(before, rungs[i]);
  }
  return seconds;
}

double StepGain::AtRung(size_t rung) const {
  const double source = source_.forecast.score.ladder[rung].seconds;
  const double twin = twin_.forecast.score.ladder[rung].seconds;
  return source == twin ? 1 : source / twin;  // a step without products takes no time at the first rungs
}

std::vector<double> StepGain::LogParts() const {
  const double source = source_.forecast.score.ladder.back().seconds;
  const double twin = twin_.forecast.score.ladder.back().seconds;
  const double mean = source == twin ? source : (source - twin) / std::log(source / twin);
  const std::vector<double> of_source = StepsOf(source_.forecast.score);
  const std::vector<double> of_twin = StepsOf(twin_.forecast.score);
  std::vector<double> parts;
  for (size_t rung = 0; rung < of_source.size(); ++rung)
    parts.push_back(mean > 0 ? (of_source[rung] - of_twin[rung]) / mean : 0);
  return parts;
}

double StepGain::LogShift(size_t knob, double log) const {
  Constants constants = fitted_.mid;
  std::array<double, kEstimateRungs> steps;
  steps.fill(1);
  if (knob < kConstants) {
    constants[knob] *= std::exp(log);
    if (AllConstants()[knob].unit == "share") constants[knob] = std::min(constants[knob], 1.0);
  } else {
    steps[knob - kConstants] = std::exp(log);
  }
  return std::log(Seconds(source_, constants, steps) / Seconds(twin_, constants, steps)) - log_mid_;
}

Interval StepGain::ratio() const {
  std::vector<KnobSwing> swings;
  for (size_t i = 0; i < knobs_.size(); ++i) {
    const double reach = kFourInFive * knobs_[i].spread;
    swings.push_back({LogShift(i, -reach), LogShift(i, reach)});
  }
  return JoinSwings(Last(), swings);
}

Interval JoinSwings(double mid, const std::vector<KnobSwing>& swings) {
  double falls = 0, rises = 0;
  for (const KnobSwing& swing : swings) {
    const double fall = std::min({swing.low, swing.high, 0.0});
    const double rise = std::max({swing.low, swing.high, 0.0});
    falls += fall * fall;
    rises += rise * rise;
  }
  return {mid * std::exp(-std::sqrt(falls)), mid, mid * std::exp(std::sqrt(rises))};
}

}  // namespace twinforge
