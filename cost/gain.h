// How much faster a twin's step is than its source's on one chip, and how sure that is.
//
//   StepGain::Of(llama, twin, "v6e", {.batch = 8}, "", "bf16")
//     R3 memory   1.000     R8 batch   1.031     80 %: 1.012 to 1.049
//
// Source and twin run on the same chip under the same constants. So each constant is moved through both at
// once: what slows both alike cancels in the ratio, and only what a rewrite touches is in doubt.
#ifndef TWINFORGE_COST_GAIN_H_
#define TWINFORGE_COST_GAIN_H_

#include <array>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cost/doubt.h"
#include "cost/forecast.h"
#include "cost/terms.h"

namespace twinforge {

// Something that moves a chip's estimates: a fitted constant, or what the fit left unexplained of one rung
// ("unexplained R4": that rung's step, of source and twin alike, off by the band of the estimate).
struct GainKnob {
  std::string name;      // "weight_read"
  double spread = 0;     // of the logarithm: one standard deviation
  bool assumed = false;  // no row speaks for it
};

class StepGain {
 public:
  // Refuses as ForecastStep() does, for the source or for the twin.
  static absl::StatusOr<StepGain> Of(const Graph& source, const Graph& twin, const std::string& chip,
                                     const Workload& workload, const std::string& stack,
                                     const std::string& format);

  const Forecast& source() const { return source_.forecast; }
  const Forecast& twin() const { return twin_.forecast; }
  const std::string& chip() const { return source_.forecast.score.chip; }

  // source / twin at a rung of the ladder, 0 to 8. Exactly 1 where both take the same time.
  double AtRung(size_t rung) const;
  double Last() const { return AtRung(source_.forecast.score.ladder.size() - 1); }

  // The logarithm of the last rung's ratio as a sum over rungs: what of it is owed to each rung's step.
  // (step of the source - step of the twin) / logarithmic mean of the two times (Ang's LMDI, which leaves no
  // rest).
  std::vector<double> LogParts() const;

  const std::vector<GainKnob>& knobs() const { return knobs_; }
  // What the logarithm of the last rung's ratio changes by where knob `knob` is e^log times its value, in
  // source and twin alike. Shares stay at most one.
  double LogShift(size_t knob, double log) const;

  // Four in five: the knobs as independent, each moved to either end of its own range.
  Interval ratio() const;

 private:
  struct Side {
    Forecast forecast;
    StepTerms terms;
  };
  static absl::StatusOr<Side> SideOf(const Graph& graph, const Graph* useful, const std::string& chip,
                                     const Workload& workload, const std::string& stack,
                                     const std::string& format);
  double Seconds(const Side& side, const Constants& constants,
                 const std::array<double, kEstimateRungs>& steps) const;

  Side source_;
  Side twin_;
  FittedConstants fitted_;
  std::vector<GainKnob> knobs_;
  double log_mid_ = 0;  // of Seconds() at the middle of all knobs
};

// Moves of one knob to the low and the high end of its four in five.
struct KnobSwing {
  double low = 0;
  double high = 0;
};
// e^(log_mid - root of summed squares of falls) and so on; `log_mid` itself where nothing moves.
Interval JoinSwings(double mid, const std::vector<KnobSwing>& swings);

}  // namespace twinforge

#endif  // TWINFORGE_COST_GAIN_H_
