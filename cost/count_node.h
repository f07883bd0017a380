// One node's counts: internal to cost/, shared by counts.cc (which walks a graph) and count_node.cc (the
// formulas).
#ifndef TWINFORGE_COST_COUNT_NODE_H_
#define TWINFORGE_COST_COUNT_NODE_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cost/counts.h"
#include "ir/graph.h"

namespace twinforge {

// What holds for a whole step.
struct Step {
  const Graph& graph;
  const Workload& workload;
  int64_t fresh = 1;     // new places of each sequence
  int64_t past = 0;      // cached ones
  int64_t batch = 1;     // sequences of one data-parallel group
  int64_t rows = 0;      // batch * fresh
  int64_t all_rows = 0;  // of all groups
  bool causal = false;   // some attention is: there is a cache, and the last logits are enough
  std::map<std::string, int64_t> symbols;  // batch, seq, past
};

// `params`: those of node.params, in that order. Fills all of `count` but operand_bytes.
absl::Status CountNode(const Step& step, const Node& node, absl::Span<const Param* const> params,
                       NodeCount& count);

// What a training step makes of a forward pass's counts: each product and its two gradients, the saved
// operands, the optimiser's state and the exchanges of a data-parallel axis.
//
//   y = x W            dx = dy W^T            dW = x^T dy
void MakeTraining(const Workload& workload, NodeCount& count);

}  // namespace twinforge

#endif  // TWINFORGE_COST_COUNT_NODE_H_
