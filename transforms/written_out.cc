#include "transforms/written_out.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace twinforge {

absl::StatusOr<Graph> WrittenOut(const Graph& graph, const Node& node, DecompositionDepth depth) {
  Builder alone(node.path);
  DecompositionInputs inputs;
  for (size_t i = 0; i < node.operands.size(); ++i) {
    // No part is called so: parts have the node's path and a dot before their names.
    inputs.operands.push_back(
        alone.Input(absl::StrCat("-", i, node.path), graph.node(node.operands[i]).type));
  }
  TWIN_ASSIGN_OR_RETURN(const Decomposition done, EmitDecomposition(graph, node, inputs, depth, alone));
  alone.Output("result", done.result);
  return alone.Finish();
}

}  // namespace twinforge
