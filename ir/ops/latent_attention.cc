// Attention whose keys and values come from one low-rank latent (DeepSeek-AI 2024, arXiv:2405.04434): what is
// remembered from call to call is the latent and one rotary key for all heads.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ir/ops/attend.h"
#include "ir/ops/common.h"
#include "ir/ops/composite.h"
#include "ir/ops/shapes.h"

namespace twinforge {
namespace {

absl::StatusOr<Type> Infer(const Graph& graph, const Node& node) { return Through(graph, node, "kv_a", "o"); }

absl::Status Check(const Graph& graph, const Node& node) {
  const LatentAttentionAttrs& attrs = node.attrs->latent_attention();
  TWIN_RETURN_IF_ERROR(AllOrNone(node, {"q_a", "q_a_norm"}));
  if (node.Has("q_a_bias") && !node.Has("q_a")) return Misfit(node, "q_a_bias without q_a");
  const absl::string_view want = node.Has("q_a") ? "q_lora" : "d_model";
  for (absl::string_view slot : {"q_nope", "q_rope"}) {
    const std::string& reads = graph.param(node, slot).type.axes[0].name;
    if (reads != want) return Misfit(node, absl::StrCat(slot, " reads ", reads, ", not ", want));
  }
  if (!IsPositive(attrs.scale())) return Misfit(node, absl::StrCat("softmax scale is ", attrs.scale()));
  if (!AttentionAttrs::ScaleRule_IsValid(attrs.scale_rule())) return Misfit(node, "unknown scale rule");
  if (!IsNotNegative(attrs.norm_eps())) return Misfit(node, absl::StrCat("norm_eps is ", attrs.norm_eps()));
  return VerifyRope(node, attrs.rope(), graph.param(node, "k_rope").type.Get("rope_dim").size);
}

std::vector<StateSlot> State(const Graph& graph, const Node& node) {
  if (!HasSequence(graph, node)) return {};
  const Type& x = OperandType(graph, node);
  const Axis past{"past", Dim::Symbol("past")};
  const Axis latent = ActivationAxis(graph.param(node, "kv_a").type.Get("kv_lora"));
  const Axis rope = ActivationAxis(graph.param(node, "k_rope").type.Get("rope_dim"));
  return {{"latent", Type{x.dtype, {x.axes[0], past, latent}}},
          {"rope_key", Type{x.dtype, {x.axes[0], past, rope}}}};
}

NodeId Turned(Emitter& emit, NodeId x) {
  const Rope& rope = emit.attrs().latent_attention().rope();
  if (rope.style() == Rope::ABSENT) return x;
  OpAttrs attrs;
  *attrs.mutable_rope() = rope;
  return emit.Composite(OpKind::kRope, {x, emit.Positions()}, std::move(attrs));
}

// Keys of every head from the latent, each followed by the one rotary key.
NodeId Keys(Emitter& emit, NodeId latent, NodeId rope_key) {
  const NodeId nope = Project(emit, latent, "k_b");
  std::vector<Axis> axes = emit.AxesOf(nope);
  if (axes.size() == 4) axes[3] = emit.AxisOf(rope_key, 2);
  return emit.Concat({nope, emit.Broadcast(rope_key, axes, {0, 1, 3})}, -1);
}

// One head for all: x [batch, keys, width] as [batch, keys, one, width].
NodeId Shared(Emitter& emit, NodeId x) {
  return emit.Reshape(x, {emit.AxisOf(x, 0), emit.AxisOf(x, 1), Axis{"one", Dim(1)}, emit.AxisOf(x, 2)});
}

// x [batch, seq, heads, places], each head contracted at axis 3 with its part of the kernel in `slot`
// [kv_lora -> heads, width] along `contracted`: [batch, seq, heads, the other].
NodeId ThroughHeads(Emitter& emit, NodeId x, absl::string_view slot, int contracted) {
  const NodeId kernel = emit.Convert(emit.Param(slot), emit.DTypeOf(x));
  const NodeId by_head =
      emit.Dot(x, kernel, {.x_batch = {2}, .y_batch = {1}, .x_contract = {3}, .y_contract = {contracted}});
  return emit.Transpose(by_head, {1, 2, 0, 3});
}

// Keys and values written out for each head; or, absorbed, queries and mixtures carried to the latents
// instead.
NodeId Mixed(Emitter& emit, AttendInputs in, NodeId q_nope, NodeId q_rope, NodeId latent, NodeId rope_key) {
  if (!emit.attrs().latent_attention().absorbed()) {
    in.q = emit.Concat({q_nope, q_rope}, -1);
    in.k = Keys(emit, latent, rope_key);
    in.v = Project(emit, latent, "v_b");
    return Attend(emit, in);
  }
  in.q = emit.Concat({ThroughHeads(emit, q_nope, "k_b", 2), q_rope}, -1);
  in.k = emit.Concat({Shared(emit, latent), Shared(emit, rope_key)}, -1);
  in.v = Shared(emit, latent);
  return ThroughHeads(emit, Attend(emit, in), "v_b", 0);
}

NodeId Decompose(Emitter& emit) {
  emit.NeedsSequence();
  const LatentAttentionAttrs& attrs = emit.attrs().latent_attention();
  const NodeId x = emit.operand();
  NodeId query = x;
  if (emit.Has("q_a")) {
    query = Normalize(emit, Project(emit, x, "q_a", "q_a_bias"), {"q_a_norm", attrs.norm_eps()});
  }
  const NodeId q_rope = Turned(emit, Project(emit, query, "q_rope"));
  const NodeId fresh =
      Normalize(emit, Project(emit, x, "kv_a", "kv_a_bias"), {"kv_a_norm", attrs.norm_eps()});
  AttendInputs in;
  in.attrs.set_scale(attrs.scale());
  in.attrs.set_causal(true);
  in.past = Past(emit);
  in.starts = emit.starts();
  const NodeId latent = Remember(emit, 0, fresh);
  const NodeId rope_key = Remember(emit, 1, Turned(emit, Project(emit, x, "k_rope", "k_rope_bias")));
  const NodeId q_nope = Project(emit, query, "q_nope");
  return Project(emit, Mixed(emit, in, q_nope, q_rope, latent, rope_key), "o", "o_bias");
}

}  // namespace

const CompositeOp kLatentAttentionOp = {Infer, Check, Decompose, State};

}  // namespace twinforge
