// Softmax attention over grouped heads (Ainslie et al. 2023, arXiv:2305.13245): projections, norms of q and
// k, rotary turning, mask, sinks, and the keys and values of earlier calls as state.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ir/ops/attend.h"
#include "ir/ops/common.h"
#include "ir/ops/composite.h"
#include "ir/ops/shapes.h"

namespace twinforge {
namespace {

absl::StatusOr<Type> Infer(const Graph& graph, const Node& node) { return Through(graph, node, "q", "o"); }

absl::Status Check(const Graph& graph, const Node& node) {
  const AttentionAttrs& attrs = node.attrs->attention();
  const int64_t heads = graph.param(node, "q").type.Get("heads").size;
  const ParamType& k = graph.param(node, "k").type;
  const int64_t kv_heads = k.Get("kv_heads").size;
  if (heads % kv_heads != 0) {
    return Misfit(node, absl::StrCat("heads ", heads, " is not a multiple of kv_heads ", kv_heads));
  }
  TWIN_RETURN_IF_ERROR(VerifyScores(node, attrs, heads));
  TWIN_RETURN_IF_ERROR(AllOrNone(node, {"q_norm", "k_norm"}));
  if (node.Has("q_norm") != attrs.has_qk_norm_eps() || !IsNotNegative(attrs.qk_norm_eps())) {
    return Misfit(node, "qk_norm_eps stands where q_norm and k_norm do, and is not negative");
  }
  const int64_t head_dim = k.Get("head_dim").size;
  if (attrs.qk_norm_dim() < 0 || attrs.qk_norm_dim() > head_dim) {
    return Misfit(node, absl::StrCat("qk_norm_dim ", attrs.qk_norm_dim(), " of a head of ", head_dim));
  }
  return VerifyRope(node, attrs.rope(), head_dim);
}

std::vector<StateSlot> State(const Graph& graph, const Node& node) {
  if (!HasSequence(graph, node)) return {};
  const Type& x = OperandType(graph, node);
  std::vector<StateSlot> slots;
  for (const char* slot : {"k", "v"}) {
    const ParamType& kernel = graph.param(node, slot).type;
    slots.push_back(
        {slot, Type{x.dtype,
                    {x.axes[0], Axis{"past", Dim::Symbol("past")}, ActivationAxis(kernel.Get("kv_heads")),
                     ActivationAxis(kernel.Get("head_dim"))}}});
  }
  return slots;
}

NodeId Turned(Emitter& emit, const Rope& rope, NodeId x) {
  if (rope.style() == Rope::ABSENT) return x;
  OpAttrs attrs;
  *attrs.mutable_rope() = rope;
  return emit.Composite(OpKind::kRope, {x, emit.Positions()}, std::move(attrs));
}

NodeId Decompose(Emitter& emit) {
  emit.NeedsSequence();
  const AttentionAttrs& attrs = emit.attrs().attention();
  const NodeId x = emit.operand();
  AttendInputs in;
  in.attrs = attrs;
  in.past = Past(emit);
  in.starts = emit.starts();
  in.q = Project(emit, x, "q", "q_bias");
  in.k = Project(emit, x, "k", "k_bias");
  in.v = Project(emit, x, "v", "v_bias");
  if (emit.Has("q_norm")) {
    RmsSettings norm{"q_norm", attrs.qk_norm_eps(), attrs.qk_norm_offset(), attrs.qk_norm_dim()};
    in.q = Normalize(emit, in.q, norm);
    norm.slot = "k_norm";
    in.k = Normalize(emit, in.k, norm);
  }
  in.q = Turned(emit, attrs.rope(), in.q);
  in.k = Remember(emit, 0, Turned(emit, attrs.rope(), in.k));
  in.v = Remember(emit, 1, in.v);
  if (emit.Has("sinks")) in.sinks = emit.Param("sinks");
  return Project(emit, Attend(emit, in), "o", "o_bias");
}

}  // namespace

const CompositeOp kAttentionOp = {Infer, Check, Decompose, State};

}  // namespace twinforge
