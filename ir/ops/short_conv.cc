// y = (c * taps(b * x)) o, where b, c and x are projections of the operand (LFM2: Liquid AI 2025,
// arXiv:2511.23404).
#include "ir/ops/causal_taps.h"
#include "ir/ops/common.h"
#include "ir/ops/composite.h"
#include "ir/ops/shapes.h"

namespace twinforge {
namespace {

absl::StatusOr<Type> Infer(const Graph& graph, const Node& node) { return Through(graph, node, "x", "o"); }

absl::Status Check(const Graph&, const Node& node) {
  const Activation act = node.attrs->short_conv().act();
  if (act == ACTIVATION_UNSET || IsActivation(act)) return absl::OkStatus();
  return Misfit(node, "no activation that is known");
}

// One tap sees nothing but the present.
std::vector<StateSlot> State(const Graph& graph, const Node& node) {
  if (!HasSequence(graph, node)) return {};
  if (graph.param(node, "taps").type.axes[0].size == 1) return {};
  return {TapsState(graph, node, "taps", "window")};
}

NodeId Decompose(Emitter& emit) {
  emit.NeedsSequence();
  const NodeId x = emit.operand();
  const NodeId gated = emit.Multiply(Project(emit, x, "b", "b_bias"), Project(emit, x, "x", "x_bias"));
  NodeId y = CausalTaps(emit, gated, {"taps", "taps_bias", 0});
  const Activation act = emit.attrs().short_conv().act();
  if (act != ACTIVATION_UNSET) y = Activate(emit, act, y);
  return Project(emit, emit.Multiply(Project(emit, x, "c", "c_bias"), y), "o", "o_bias");
}

}  // namespace

const CompositeOp kShortConvOp = {Infer, Check, Decompose, State};

}  // namespace twinforge
