// down(act(gate x) * up x) (Shazeer 2020, arXiv:2002.05202), and its clamped form (gpt-oss).
#include "ir/ops/common.h"
#include "ir/ops/composite.h"
#include "ir/ops/shapes.h"

namespace twinforge {
namespace {

absl::StatusOr<Type> Infer(const Graph& graph, const Node& node) {
  return Through(graph, node, "gate", "down");
}

absl::Status Check(const Graph&, const Node& node) { return VerifyMlp(node, node.attrs->mlp()); }

NodeId Decompose(Emitter& emit) {
  const NodeId gate = Project(emit, emit.operand(), "gate", "gate_bias");
  const NodeId up = Project(emit, emit.operand(), "up", "up_bias");
  return Project(emit, Gate(emit, emit.attrs().mlp(), gate, up), "down", "down_bias");
}

}  // namespace

const CompositeOp kGatedMlpOp = {Infer, Check, Decompose};

}  // namespace twinforge
