// A composite as lower_composites writes it out, alone: what raise_composites looks for.
#ifndef TWINFORGE_TRANSFORMS_WRITTEN_OUT_H_
#define TWINFORGE_TRANSFORMS_WRITTEN_OUT_H_

#include "absl/status/statusor.h"
#include "ir/decompose.h"
#include "ir/graph.h"

namespace twinforge {

// Inputs: one per operand of `node`, of its type. Output: `result`. Unlike DecompositionOf it has no other
// inputs: tokens stand at 0, 1, 2, .... TF1501 where the operands have no meaning for the node.
absl::StatusOr<Graph> WrittenOut(const Graph& graph, const Node& node, DecompositionDepth depth);

}  // namespace twinforge

#endif  // TWINFORGE_TRANSFORMS_WRITTEN_OUT_H_
