#include "ir/decompose.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "ir/ops/composite.h"

namespace twinforge {

std::vector<StateSlot> StateOf(const Graph& graph, const Node& node) {
  const CompositeOp* composite = Info(node.op).composite;
  if (composite == nullptr || composite->state == nullptr) return {};
  return composite->state(graph, node);
}

absl::StatusOr<Decomposition> EmitDecomposition(const Graph& from, const Node& node,
                                                const DecompositionInputs& inputs, DecompositionDepth depth,
                                                Builder& to) {
  const CompositeOp* composite = Info(node.op).composite;
  TWIN_CHECK(composite != nullptr, "a primitive has no decomposition");
  TWIN_CHECK(inputs.operands.size() == node.operands.size(), "as many operands as the node has");
  TWIN_CHECK(inputs.state.empty() || inputs.positions >= 0, "with state come positions");
  Emitter emit(from, node, inputs, depth, to);
  Decomposition done;
  done.result = composite->decompose(emit);
  // A node may call an axis otherwise than what it is computed from.
  if (emit.status().ok()) done.result = emit.Reshape(done.result, node.type.axes);
  if (!emit.status().ok()) return emit.status();
  done.state = emit.new_state();
  for (NodeId value : done.state) TWIN_CHECK(value >= 0, "a decomposition forgets its state");
  const Type& type = to.TypeOf(done.result);
  if (type == node.type) return done;
  return Error(1501, node.path,
               absl::StrCat("the decomposition gives ", Text(type), ", the node is ", Text(node.type)));
}

absl::StatusOr<Graph> DecompositionOf(const Graph& from, const Node& node, DecompositionDepth depth,
                                      bool with_state) {
  Builder body(node.path);
  DecompositionInputs inputs;
  for (size_t i = 0; i < node.operands.size(); ++i) {
    inputs.operands.push_back(body.Input(absl::StrCat("operand_", i), from.node(node.operands[i]).type));
  }
  const std::vector<StateSlot> slots = with_state ? StateOf(from, node) : std::vector<StateSlot>();
  for (const StateSlot& slot : slots) inputs.state.push_back(body.Input(slot.name, slot.type));
  if (!node.operands.empty()) {
    const std::vector<Axis>& axes = from.node(node.operands[0]).type.axes;
    if (axes.size() >= 2) {
      const Type type{DType::kI32, {axes[0], axes[1]}};
      inputs.positions = body.Input("positions", type);
      inputs.token_types = body.Input("token_types", type);
    }
  }
  TWIN_ASSIGN_OR_RETURN(const Decomposition done, EmitDecomposition(from, node, inputs, depth, body));
  body.Output("result", done.result);
  for (size_t i = 0; i < slots.size(); ++i) {
    body.Output(absl::StrCat("new_", slots[i].name), done.state[i]);
  }
  return body.Finish();
}

}  // namespace twinforge
