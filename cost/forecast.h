// The whole ladder of a step, R0 to R8: what is proved, then what measurements say of an engine on this chip.
//
//   ForecastStep(graph, nullptr, "v6e", {.batch = 16, .context = 2048}, "vllm")
//     seconds  bound 11.8 ms, low 13.0, mid 14.2, high 15.5     four in five measured steps lie between low
//     and high
//
// Experts are counted twice where no routing is declared: chosen alike for the bounds, at random for the
// estimates.
#ifndef TWINFORGE_COST_FORECAST_H_
#define TWINFORGE_COST_FORECAST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cost/doubt.h"
#include "cost/estimate.h"
#include "cost/memory.h"
#include "cost/score.h"
#include "cost/serve.h"

namespace twinforge {

struct Forecast {
  Score score;        // its ladder goes on to R8, class E; the last op, "step", is what belongs to no node
  Interval seconds;   // of the step: 80 % band
  Interval envelope;  // every constant at its low or high end at once
  double bound = 0;   // R3
  bool feasible =
      true;         // else the ladder ends at R3 and nothing is estimated; score.shortfall says what would do
  StepTerms terms;  // what the estimates follow from
  std::vector<Doubt> doubts;
  Capacity capacity;
  std::string basis;        // what the constants rest on
  bool certifiable = true;  // less than half of the doubt comes from constants that no row speaks for
};

// `stack`: TF1711 for one that is not known; empty for the mean of all engines. `format`: as
// ParseWeightFormat() names it, for the constants that depend on it. Refuses as ScoreGraph() does, and with
// TF1712 what does not fit into the memory that the engine takes, naming what would.
absl::StatusOr<Forecast> ForecastStep(const Graph& graph, const Graph* useful, const std::string& chip,
                                      const Workload& workload, const std::string& stack,
                                      const std::string& format, bool must_fit = true);

struct ServingForecast {
  Interval tpot, ttft;
  double tpot_bound = 0;  // of a decode step alone
  double running = 0;     // sequences that generate at a time
  double tokens_per_second = 0;
  std::vector<Doubt> doubts;
  Capacity capacity;
  std::string basis;
};
absl::StatusOr<ServingForecast> ForecastServing(const Graph& graph, const std::string& chip,
                                                const Workload& workload, const Serving& serving,
                                                const std::string& stack, const std::string& format);

}  // namespace twinforge

#endif  // TWINFORGE_COST_FORECAST_H_
