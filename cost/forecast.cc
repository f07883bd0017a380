#include "cost/forecast.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "cost/chip_file.h"
#include "cost/doubt.h"
#include "cost/ladder.h"

namespace twinforge {
namespace {

constexpr absl::string_view kNames[kEstimateRungs] = {"kernel", "network", "launch", "power", "batch"};

// What the numbers of an engine rest on; without one, the mean of all with a third of memory's tenth kept
// free.
struct Engine {
  FittedConstants fitted;
  Calibration::Stack stack;
};

absl::StatusOr<Engine> EngineOf(const std::string& stack, const Chip& chip, const std::string& format) {
  const Calibration& calibration = ShippedCalibration();
  Engine engine;
  engine.stack.set_memory_fraction(1);
  engine.stack.set_page(1);
  if (!stack.empty()) {
    TWIN_ASSIGN_OR_RETURN(const Calibration::Stack* row, FindStack(calibration, stack));
    engine.stack = *row;
  }
  engine.fitted = ConstantsFor(calibration, stack, chip, format);
  return engine;
}

// R4 to R8 after the score's own rungs, node by node, and the step's own row after them.
void ExtendLadder(const StepTerms& terms, const FittedConstants& fitted, Score& score) {
  std::vector<std::vector<double>> times;
  for (const std::vector<double>& steps : score.attribution) {
    std::vector<double> row;
    double sum = 0;
    for (const double step : steps) row.push_back(sum += step);
    times.push_back(std::move(row));
  }
  for (size_t i = 0; i < times.size(); ++i) {
    double last = times[i].back();
    EstimateTimes estimated{};
    estimated.fill(last);  // what only the source has costs its useful work at every rung
    if (i < terms.step.nodes.size()) {
      const NodeUse& use = terms.step.nodes[i];
      estimated = EstimateNode(terms.kinds[use.kind], fitted, fitted.mid);
      for (double& seconds : estimated) seconds *= static_cast<double>(terms.stages[use.stage].passes);
    }
    for (const double seconds : estimated) times[i].push_back(last = std::max(last, seconds));
  }
  std::vector<double> rest(score.ladder.size(), 0);
  for (const double seconds : EstimateRest(terms, fitted, fitted.mid)) rest.push_back(seconds);
  times.push_back(std::move(rest));
  score.ops.push_back({.path = "step",
                       .op = "host",
                       .note = absl::StrCat("scheduling, sampling, each sequence's own cost",
                                            terms.stages.size() > 1 ? ", hand-overs and bubbles" : "")});
  std::vector<RungRow> rungs = score.ladder;
  for (int i = 0; i < kEstimateRungs; ++i) {
    rungs.push_back({.rung = absl::StrCat("R", rungs.size()),
                     .name = std::string(kNames[i].data(), kNames[i].size()),
                     .evidence = 'E'});
  }
  FillLadder(std::move(rungs), std::move(times), score);
}

absl::Status DoesNotFit(const ChipFigures& chip, const Capacity& capacity, int64_t batch,
                        const std::string& devices) {
  const double needed = static_cast<double>(capacity.parameter_bytes + capacity.cache_bytes);
  const int64_t fits = capacity.sequences;
  const std::string fewer =
      fits >= 1 && fits < batch ? absl::StrCat("a batch of ", fits, " would fit; ") : std::string();
  return Error(1712, chip.summary.id,
               absl::StrFormat("needs %.1f GB of the %.1f GB that a device gives", needed / 1e9,
                               static_cast<double>(capacity.usable_bytes) / 1e9),
               absl::StrCat(fewer, devices));
}

Workload AtRandom(Workload workload) {
  workload.routing = EstimatedRouting(workload.routing);
  return workload;
}

// What this engine pads, and experts as unevenly chosen as chance makes them; nullopt where that is nothing.
std::optional<Workload> PaddedBy(const Engine& engine, const ChipFigures& chip, Workload workload) {
  if (workload.training) return std::nullopt;
  Padding& padding = workload.padding;
  padding.page = engine.stack.page();
  padding.tokens_from = chip.is_tpu() ? engine.stack.tpu_tokens_from() : 0;
  padding.uneven = workload.routing == Routing::kExpected && workload.ep > 1;
  if (padding.page == 1 && padding.tokens_from == 0 && !padding.uneven) return std::nullopt;
  return workload;
}

// Without any, no count depends on the routing.
bool HasExperts(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(),
                     [](const Node& node) { return node.op == OpKind::kMoe; });
}

}  // namespace

absl::StatusOr<Forecast> ForecastStep(const Graph& graph, const Graph* useful, const std::string& chip,
                                      const Workload& workload, const std::string& stack,
                                      const std::string& format, bool must_fit) {
  TWIN_ASSIGN_OR_RETURN(const ChipFigures* figures, FindChipFacts(chip));
  TWIN_ASSIGN_OR_RETURN(const Chip* file, FindIn(ShippedChips(), chip));
  TWIN_ASSIGN_OR_RETURN(const Engine engine, EngineOf(stack, *file, format));
  Forecast forecast;
  TWIN_RETURN_IF_ERROR(CheckFigures(*figures));
  StepTerms& terms = forecast.terms;
  TWIN_ASSIGN_OR_RETURN(terms, TermsOf(*figures, graph, workload));
  TWIN_ASSIGN_OR_RETURN(forecast.score, ScoreTerms(*figures, terms, graph, useful, workload));
  if (HasExperts(graph) && EstimatedRouting(workload.routing) != workload.routing) {
    TWIN_ASSIGN_OR_RETURN(StepTerms at_random, TermsOf(*figures, graph, AtRandom(workload), &terms.step));
    terms = std::move(at_random);
    SetPasses(forecast.score.passes, terms);
  }
  const int64_t places = workload.context + (workload.phase == Phase::kPrefill ? workload.past : int64_t{1});
  forecast.capacity =
      CapacityOf(*figures, terms, places, engine.stack.memory_fraction(), engine.stack.page());
  forecast.bound = forecast.score.ladder.back().seconds;
  if (workload.training) forecast.capacity.kv_tokens = 0;  // what is kept are operands for the backward pass
  if (!forecast.capacity.feasible) {
    Score apart = forecast.score;
    NoteShortfall(*figures, graph, engine.stack.memory_fraction(), engine.stack.page(), apart);
    const absl::Status refusal = DoesNotFit(*figures, forecast.capacity, workload.batch, apart.shortfall);
    if (must_fit) return refusal;
    const Diagnostic said = *DiagnosticOf(refusal);
    forecast.feasible = false;
    forecast.score.shortfall = absl::StrCat(said.message, "; ", said.hint);
    forecast.score.tokens_per_second = 0;
    return forecast;
  }
  TWIN_RETURN_IF_ERROR(terms.network);
  if (const std::optional<Workload> padded = PaddedBy(engine, *figures, AtRandom(workload))) {
    TWIN_RETURN_IF_ERROR(AddPadding(*figures, graph, *padded, terms));
  }
  const size_t bounds = forecast.score.ladder.size();
  ExtendLadder(terms, engine.fitted, forecast.score);
  forecast.bound = forecast.score.ladder[bounds - 1].seconds;  // as the longer ladder rounds it down
  const double mid = forecast.score.ladder.back().seconds;
  forecast.seconds = Band(mid, engine.fitted.band, forecast.bound);
  const auto seconds_of = [&](const Constants& constants) {
    return EstimateStep(terms, engine.fitted, constants);
  };
  forecast.envelope = EnvelopeOf(engine.fitted, seconds_of, forecast.seconds.mid, forecast.bound);
  forecast.doubts = DoubtsOf(engine.fitted, seconds_of);
  forecast.basis = engine.fitted.basis;
  forecast.certifiable = IsCertifiable(engine.fitted, forecast.doubts);
  return forecast;
}

absl::StatusOr<ServingForecast> ForecastServing(const Graph& graph, const std::string& chip,
                                                const Workload& workload, const Serving& serving,
                                                const std::string& stack, const std::string& format) {
  TWIN_ASSIGN_OR_RETURN(const ChipFigures* figures, FindChipFacts(chip));
  TWIN_RETURN_IF_ERROR(CheckFigures(*figures));
  TWIN_ASSIGN_OR_RETURN(const Chip* file, FindIn(ShippedChips(), chip));
  TWIN_ASSIGN_OR_RETURN(const Engine engine, EngineOf(stack, *file, format));
  TWIN_ASSIGN_OR_RETURN(const ServingTerms terms,
                        ServingTermsOf(*figures, graph, AtRandom(workload), serving, engine.stack));
  const FittedConstants& fitted = engine.fitted;
  ServingForecast forecast{.capacity = terms.capacity, .basis = fitted.basis};
  if (!terms.capacity.feasible && terms.capacity.sequences < 1) {
    Score apart{.chip = chip, .workload = workload};
    apart.workload.phase = Phase::kDecode;
    apart.workload.batch = 1;
    apart.workload.context = serving.input_len + serving.output_len;
    NoteShortfall(*figures, graph, engine.stack.memory_fraction(), engine.stack.page(), apart);
    return DoesNotFit(*figures, terms.capacity, serving.concurrency, apart.shortfall);
  }
  const Steady steady = SteadyState(terms, fitted, fitted.mid);
  Workload same = workload;
  same.phase = Phase::kDecode;
  same.batch = 1;
  same.context = serving.input_len;
  TWIN_ASSIGN_OR_RETURN(const Score least, ScoreGraph(graph, nullptr, chip, same));
  forecast.tpot_bound = least.ladder.back().seconds;
  forecast.tpot = Band(steady.tpot, fitted.band, forecast.tpot_bound);
  // Clients for whom the cache has no room wait until others have had their answers.
  const double clients = static_cast<double>(serving.concurrency);
  const double answer = steady.wait + terms.output_len * forecast.tpot.mid;
  const double outside = (clients / terms.batch - 1) * answer;
  forecast.ttft = Band(steady.ttft + outside, fitted.first_token_band, 0);
  forecast.running = steady.running;
  // As the clients see it: one answer each in the time that it takes.
  forecast.tokens_per_second =
      clients * terms.output_len / (forecast.ttft.mid + (terms.output_len - 1) * forecast.tpot.mid);
  forecast.doubts = DoubtsOf(
      fitted, [&](const Constants& constants) { return SteadyState(terms, fitted, constants).tpot; });
  return forecast;
}

}  // namespace twinforge
