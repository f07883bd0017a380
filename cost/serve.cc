#include "cost/serve.h"

#include <algorithm>

#include "base/status_macros.h"

namespace twinforge {

absl::StatusOr<ServingTerms> ServingTermsOf(const ChipFigures& chip, const Graph& graph, Workload workload,
                                            const Serving& serving, const Calibration::Stack& stack) {
  ServingTerms terms;
  terms.output_len = static_cast<double>(serving.output_len);
  workload.phase = Phase::kDecode;
  workload.batch = serving.concurrency;
  workload.past = 0;
  workload.context = serving.input_len + serving.output_len / 2;
  TWIN_ASSIGN_OR_RETURN(terms.decode, TermsOf(chip, graph, workload));
  terms.capacity = CapacityOf(chip, terms.decode, workload.context, stack.memory_fraction(), stack.page());
  const auto fits = static_cast<int64_t>(terms.capacity.sequences);
  if (terms.capacity.kv_tokens > 0 && fits >= 1 && fits < serving.concurrency) {
    workload.batch = fits;
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
  Steady steady;
  double running = 1;  // share of the batch
  for (int i = 0; i < 8; ++i) {
    steady.tpot = EstimateStep(terms.decode, fitted, constants, running) +
                  Of(constants, Constant::kShare) * running * prompts * prompt;
    const double output = terms.output_len * steady.tpot;
    running = (running + output / (output + wait)) / 2;
  }
  steady.running = running * terms.batch;
  steady.ttft =
      prompt * (1 + Of(constants, Constant::kFirstQueue) * others) + Of(constants, Constant::kFirstPrompt);
  return steady;
}

}  // namespace twinforge
