#include "cost/serve.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"

namespace twinforge {

namespace {

constexpr int64_t kMostTokens = int64_t{1} << 31;
constexpr double kConverged = 1e-12;

// Of a function that rises from above 0 to at most 1 at 1, by secants from 1 down.
template <typename Function>
double FixedPoint(const Function& function) {
  double last = 1, above = function(last) - last;
  double at = last + above;
  for (int i = 0; i < 40 && std::abs(above) > kConverged; ++i) {
    const double rest = function(at) - at;
    const double next = rest == above ? at : at - rest * (at - last) / (rest - above);
    last = at;
    above = rest;
    at = std::clamp(next, 0.0, 1.0);
  }
  return at;
}

}  // namespace

absl::StatusOr<ServingTerms> ServingTermsOf(const ChipFigures& chip, const Graph& graph, Workload workload,
                                            const Serving& serving, const Calibration::Stack& stack) {
  for (const auto& [name, value] :
       {std::pair("input-len", serving.input_len), std::pair("output-len", serving.output_len),
        std::pair("concurrency", serving.concurrency)}) {
    if (value < 1 || value > kMostTokens)
      return Error(1703, name, absl::StrCat(value, " is out of range"), "give a number from 1 on");
  }
  if (workload.pp > 1)
    return Error(1702, "pp", "an engine in steady state over pipeline stages is not counted",
                 "score its steps: --phase mixed, decode and prefill");
  ServingTerms terms;
  terms.output_len = static_cast<double>(serving.output_len);
  workload.phase = Phase::kDecode;
  workload.batch = serving.concurrency;
  workload.past = 0;
  workload.context = serving.input_len + serving.output_len / 2;
  TWIN_ASSIGN_OR_RETURN(terms.decode, TermsOf(chip, graph, workload));
  terms.capacity =
      CapacityOf(chip, terms.decode, workload.context + 1, stack.memory_fraction(), stack.page());
  const int64_t fits = terms.capacity.sequences;
  if (!terms.capacity.feasible && fits >= 1) {
    workload.batch = std::min(fits, serving.concurrency);
    TWIN_ASSIGN_OR_RETURN(terms.decode, TermsOf(chip, graph, workload));
  }
  terms.batch = static_cast<double>(workload.batch);
  workload.phase = Phase::kPrefill;
  workload.batch = workload.dp;
  workload.context = serving.input_len;
  TWIN_ASSIGN_OR_RETURN(terms.prefill, TermsOf(chip, graph, workload));
  TWIN_RETURN_IF_ERROR(terms.decode.network);
  return terms;
}

Steady SteadyState(const ServingTerms& terms, const FittedConstants& fitted, const Constants& constants) {
  const double groups = static_cast<double>(terms.decode.groups);
  const double prompt = EstimatePrefill(terms.prefill, fitted, constants);
  const double others = std::max(0.0, terms.batch / groups - 1) / 2;
  const double wait = prompt * (1 + Of(constants, Constant::kQueue) * others);
  // Prompts that a group's running sequences wait for in each step, when all of the batch runs.
  const double prompts = terms.batch / groups / terms.output_len;
  const auto tpot = [&](double running) {
    return EstimateStep(terms.decode, fitted, constants, running) +
           Of(constants, Constant::kShare) * running * prompts * prompt;
  };
  // The share that runs where a share of `running` would make clients wait so long.
  const auto share = [&](double running) {
    const double output = terms.output_len * tpot(running);
    return output / (output + wait);
  };
  const double running = FixedPoint(share);
  Steady steady{.tpot = tpot(running), .wait = wait, .running = running * terms.batch};
  steady.ttft =
      prompt * (1 + Of(constants, Constant::kFirstQueue) * others) + Of(constants, Constant::kFirstPrompt);
  return steady;
}

}  // namespace twinforge
