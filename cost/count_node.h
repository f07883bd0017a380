// One node's counts: internal to cost/, shared by counts.cc (which walks a graph) and count_node.cc (the
// formulas).
#ifndef TWINFORGE_COST_COUNT_NODE_H_
#define TWINFORGE_COST_COUNT_NODE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cost/counts.h"
#include "ir/graph.h"

namespace twinforge {

// Sequences of a step that do alike: of a mixed step the decoding ones, and the prompt.
struct StepPart {
  int64_t sequences = 1;  // of one data-parallel group
  int64_t all = 1;        // of all groups
  int64_t fresh = 1;      // new places of each
  int64_t past = 0;       // cached ones
  int64_t own = 1;        // new places that one device of `sp` has: all of a single one
};

// What holds for a whole step.
struct Step {
  const Graph& graph;
  const Workload& workload;
  std::vector<StepPart> parts;
  int64_t sequences = 1;      // of one data-parallel group
  int64_t all_sequences = 1;  // of all groups
  int64_t rows = 0;           // new places of one device, those that pad a bucket included
  int64_t all_rows = 0;       // of all groups, no padding
  bool causal = false;        // some attention is: there is a cache, and the last logits are enough
};

// Mixers of earlier places whose state does not grow.
inline bool IsRecurrent(OpKind op) {
  return op == OpKind::kShortConv || op == OpKind::kStateSpace || op == OpKind::kDeltaRule;
}

// `params`: those of node.params, in that order. Fills all of `count` but operand_bytes.
absl::Status CountNode(const Step& step, const Node& node, absl::Span<const Param* const> params,
                       NodeCount& count);

// What a training step makes of a forward pass's counts: each product and its two gradients, the saved
// operands, the optimiser's state and the exchanges of a data-parallel axis.
//
//   y = x W            dx = dy W^T            dW = x^T dy
//
// Rematerialising, a layer is run again from its input, which its first node keeps: `keeps` is of that one,
// and of nodes with products that lie in no layer.
void MakeTraining(const Workload& workload, bool keeps, NodeCount& count);

}  // namespace twinforge

#endif  // TWINFORGE_COST_COUNT_NODE_H_
