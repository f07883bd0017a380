// down(act(up x))
#include "ir/ops/common.h"
#include "ir/ops/composite.h"
#include "ir/ops/shapes.h"

namespace twinforge {
namespace {

absl::StatusOr<Type> Infer(const Graph& graph, const Node& node) {
  return Through(graph, node, "up", "down");
}

absl::Status Check(const Graph&, const Node& node) { return VerifyMlp(node, node.attrs->mlp()); }

NodeId Decompose(Emitter& emit) {
  const NodeId up = Project(emit, emit.operand(), "up", "up_bias");
  return Project(emit, Activate(emit, emit.attrs().mlp().act(), up), "down", "down_bias");
}

}  // namespace

const CompositeOp kMlpOp = {Infer, Check, Decompose};

}  // namespace twinforge
