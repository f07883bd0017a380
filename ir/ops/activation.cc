// One of the activations of ops.proto, elementwise.
#include "ir/ops/common.h"
#include "ir/ops/composite.h"
#include "ir/ops/shapes.h"

namespace twinforge {
namespace {

absl::StatusOr<Type> Infer(const Graph& graph, const Node& node) { return OperandType(graph, node); }

absl::Status Check(const Graph&, const Node& node) {
  if (IsActivation(node.attrs->activation().act())) return absl::OkStatus();
  return Misfit(node, "no activation that is known");
}

NodeId Decompose(Emitter& emit) { return Activate(emit, emit.attrs().activation().act(), emit.operand()); }

}  // namespace

const CompositeOp kActivationOp = {Infer, Check, Decompose};

}  // namespace twinforge
