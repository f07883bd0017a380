// What a step asks of a chip, node by node: seconds of each resource alone, at published rates.
//
//   layers.0.mlp   kernels 0.9 ms   weight_read 1.4 ms   exchange: all-reduce of 0.5 MB over 8
//
// Bounds take the largest of them (score.h); estimates say what each costs beyond that (estimate.h).
#ifndef TWINFORGE_COST_TERMS_H_
#define TWINFORGE_COST_TERMS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cost/chip.h"
#include "cost/counts.h"
#include "cost/score.h"
#include "ir/graph.h"

namespace twinforge {

// Seconds on one device, all at published rates.
struct NodeTerms {
  double dtype =
      0;  // useful work at legal rates, shared by all devices; conversions where their rate is known
  double shape = 0;        // kernels + attention: one device's products, idle places included
  double memory = 0;       // weight_read + cache_read, and activations larger than all on-chip memory
  double kernels = 0;      // products with parameters
  double attention = 0;    // products between activations
  double weight_read = 0;  // parameters and rows of tables
  double cache_read = 0;   // cache read and written
  double spilled = 0;      // of memory: activations, which no step finds on chip
  double vector = 0;       // operands and results, if each crossed the memory bus once
  bool experts = false;    // its kernels are experts
  bool launches = false;   // has products, so that a kernel must be started
  double exchange = 0;     // bytes of its collectives at published bandwidths
  double messages = 0;     // hops of its collectives, each of which has a latency
  // The same where pages, buckets and uneven experts are counted (Padding); absent: alike.
  std::shared_ptr<const NodeTerms> padded;
  Exact useful;    // multiply-adds, all devices
  OpCount counts;  // path and op empty
};

// What one stage of a pipeline runs and keeps; without a pipeline there is one.
struct StageTerms {
  std::vector<int64_t> uses;  // nodes of each kind
  Exact parameter_bytes;      // of one device, as its memory holds them
  Exact cache_bytes;          // of one device, after the step, all microbatches; states left out
  Exact state_bytes;          // of recurrences
  int64_t passes = 1;         // how often its nodes count in the step's bounds
};

struct StepTerms {
  StepCount step;
  std::vector<NodeTerms> kinds;  // one for each of step.kinds
  std::vector<int64_t> uses;     // nodes of each kind, as often as their stages count
  std::vector<StageTerms> stages;
  Exact parameter_bytes;  // of one device of the fullest stage, as its memory holds them
  Exact cache_bytes;      // of the same, after the step, states included
  int64_t devices = 1;    // of one stage
  // What one pass of a stage need not fetch since the one before left it on chip, at most: all on-chip memory
  // once, in training at both turns of the pass and there both ways. It shortens the whole pass, not one
  // node.
  double spared = 0;
  int64_t groups = 1;     // of devices that share the batch
  int64_t sequences = 1;  // of one group, that decode or are prefilled whole
  int64_t prompt = 0;     // places of a mixed step's prompt in each group's cache
  int64_t microbatches = 1;
  bool alone = false;  // the step starts with nothing under way: prefill and training
  double send = 0;     // seconds of handing one microbatch to the next stage, at published bandwidth
  double send_hops = 0;
  double hosted = 1;     // of them, those that a serving host has work with: none in training
  absl::Status network;  // why exchanges are unknown: no bound needs them, every estimate does
};

// Stages. A step takes no less than one microbatch's way through all stages, and no less than all of them
// take on the slowest one (slowest at R3). The larger of the two counts: every stage once, or that one alone,
// as often as there are microbatches. What a pipeline loses beyond that, its bubbles, is an estimate (R8).
//
// Refuses as ScoreGraph() does. `alike`: as of RecountStep(), or null.
absl::StatusOr<StepTerms> TermsOf(const ChipFigures& chip, const Graph& graph, const Workload& workload,
                                  const StepCount* alike = nullptr);

// Seconds of the step at rung R3: of each node the longer of its products and its bytes, no node beside
// another, less what on-chip memory spares and no less than the products and what is spilled.
double BoundSeconds(const StepTerms& terms);

// The same bound of one stage and one microbatch.
double StageBoundSeconds(const StepTerms& terms, const StageTerms& stage);

// Counts stages so often: those of the same step with experts chosen otherwise. REQUIRES: one for each stage.
void SetPasses(const std::vector<int64_t>& passes, StepTerms& terms);

// `terms` with what each node takes where the workload's padding counts. REQUIRES: `terms` are of the same
// workload without padding.
absl::Status AddPadding(const ChipFigures& chip, const Graph& graph, const Workload& padded,
                        StepTerms& terms);

// TF1707 at `place`: a count that 64 bits do not hold.
absl::Status CountOverflow(absl::string_view place);

}  // namespace twinforge

#endif  // TWINFORGE_COST_TERMS_H_
