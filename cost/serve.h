// An engine in steady state: clients that each wait for their answer before they ask again.
//
//   tpot = decode step at the running batch + prompts per step x what sequences wait for a prefill
//   prompts per step = running sequences / output length        (each that ends makes room for one)
//   running = clients x output time / (output time + time to the first token)
//
// The mixture of cost-models 4.4 with the share of clients that wait, solved as a fixed point. No simulation:
// bursts, mixed lengths and schedulers' policies are not seen.
#ifndef TWINFORGE_COST_SERVE_H_
#define TWINFORGE_COST_SERVE_H_

#include "absl/status/statusor.h"
#include "cost/estimate.h"
#include "cost/memory.h"

namespace twinforge {

struct Serving {
  int64_t input_len = 1024;
  int64_t output_len = 1024;
  int64_t concurrency = 1;
};

// The steps that serving is made of, at the bounds of a chip.
struct ServingTerms {
  StepTerms decode;   // of as many sequences as fit, half way through their output
  StepTerms prefill;  // one prompt on each group of devices
  double batch = 0;   // sequences of `decode`
  double output_len = 0;
  Capacity capacity;  // half way through the output, which is the mean of sequences in steady state
};

// TF1703 for lengths and clients below 1. `batch` is the concurrency, or what `memory_fraction` of the memory
// holds where that is less. REQUIRES: workload gives mesh, precision and routing; its phase, batch and
// context are not read.
absl::StatusOr<ServingTerms> ServingTermsOf(const ChipFigures& chip, const Graph& graph, Workload workload,
                                            const Serving& serving, const Calibration::Stack& stack);

struct Steady {
  double tpot = 0;     // seconds of each output token after the first
  double ttft = 0;     // to the first one
  double wait = 0;     // of a sequence between its answers: prefill and the prompts before it
  double running = 0;  // sequences that generate at a time: batch x output / (output + wait), Little's law
};

Steady SteadyState(const ServingTerms& terms, const FittedConstants& fitted, const Constants& constants);

}  // namespace twinforge

#endif  // TWINFORGE_COST_SERVE_H_
