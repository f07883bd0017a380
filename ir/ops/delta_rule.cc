// The gated delta rule (Yang et al. 2024, arXiv:2412.06464). Per head, with a memory S [value_dim, key_dim]:
//
//   q, k, v = silu(taps(projections))     q, k to length 1, q times scale
//   beta = logistic(..)                   alpha = exp(-exp(a_log) softplus(decay + decay_bias))
//   S_t = alpha_t S_{t-1} (1 - beta_t k_t k_t^T) + beta_t v_t k_t^T
//   out = (rms_norm(S_t q_t) * norm * silu(z)) o          the norm is over each head
//
// That is one linear recurrence, S_t = S_{t-1} A_t + U_t, in f32 or wider. Heads share q and k in groups of
// neighbours.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ir/ops/causal_taps.h"
#include "ir/ops/common.h"
#include "ir/ops/composite.h"
#include "ir/ops/shapes.h"

namespace twinforge {
namespace {

absl::StatusOr<Type> Infer(const Graph& graph, const Node& node) { return Through(graph, node, "v", "o"); }

absl::Status Check(const Graph& graph, const Node& node) {
  const DeltaRuleAttrs& attrs = node.attrs->delta_rule();
  const int64_t heads = graph.param(node, "v").type.Get("heads").size;
  const int64_t key_heads = graph.param(node, "k").type.Get("key_heads").size;
  if (heads % key_heads != 0) {
    return Misfit(node, absl::StrCat("heads ", heads, " is not a multiple of key_heads ", key_heads));
  }
  for (const char* taps : {"q_taps", "k_taps", "v_taps"}) TWIN_RETURN_IF_ERROR(NeedsTaps(graph, node, taps));
  if (!IsNotNegative(attrs.norm_eps())) return Misfit(node, absl::StrCat("norm_eps is ", attrs.norm_eps()));
  return IsPositive(attrs.scale()) ? absl::OkStatus()
                                   : Misfit(node, absl::StrCat("scale is ", attrs.scale()));
}

std::vector<StateSlot> State(const Graph& graph, const Node& node) {
  if (!HasSequence(graph, node)) return {};
  const Type& x = OperandType(graph, node);
  const ParamType& v = graph.param(node, "v").type;
  const DType wide = x.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  return {TapsState(graph, node, "q_taps", "q_window"),
          TapsState(graph, node, "k_taps", "k_window"),
          TapsState(graph, node, "v_taps", "v_window"),
          {"memory", Type{wide,
                          {x.axes[0], ActivationAxis(v.Get("heads")), ActivationAxis(v.Get("value_dim")),
                           ActivationAxis(graph.param(node, "k").type.Get("key_dim"))}}}};
}

// x / sqrt(sum of squares + 1e-6) along the last axis, for each head: [batch, seq, heads, key_dim].
NodeId UnitPerHead(Emitter& emit, NodeId x, const Axis& heads) {
  const NodeId sum = emit.ReduceLast(ReduceAttrs::SUM, emit.Multiply(x, x));
  const NodeId unit =
      emit.Multiply(x, emit.SpreadFirst(emit.Unary(OpKind::kRsqrt, emit.Shift(sum, 1e-6)), x));
  return PerHead(emit, unit, heads);
}

// a_i b_j of the last axes: [batch, seq, heads, i, j].
NodeId Outer(Emitter& emit, NodeId a, NodeId b, const std::string& name) {
  std::vector<Axis> axes = emit.AxesOf(a);
  if (axes.size() != 4) return -1;
  axes[3].name = name;
  axes.push_back(emit.AxisOf(b, 3));
  return emit.Multiply(emit.Broadcast(a, axes, {0, 1, 2, 3}), emit.Broadcast(b, axes, {0, 1, 2, 4}));
}

// alpha (1 - beta k k^T): [batch, seq, heads, key, key_dim].
NodeId Fading(Emitter& emit, NodeId k, NodeId beta) {
  const DType wide = emit.DTypeOf(k);
  const NodeId raw = emit.Widen(AddBias(emit, Project(emit, emit.operand(), "decay"), "decay_bias"));
  const NodeId rate = emit.Unary(OpKind::kExp, emit.Convert(emit.Param("a_log"), wide));
  const NodeId fall = emit.Multiply(SoftPlus(emit, raw), emit.SpreadLast(rate, raw));
  const NodeId alpha = emit.Unary(OpKind::kExp, emit.Unary(OpKind::kNegate, fall));
  const NodeId own = emit.Multiply(k, emit.SpreadFirst(beta, k));
  const NodeId forgotten = Outer(emit, own, k, "key");
  const Type places{DType::kI32, emit.AxesOf(forgotten)};
  const NodeId diagonal = emit.Compare(CompareAttrs::EQ, emit.Iota(places, 3), emit.Iota(places, 4));
  const NodeId kept = emit.Subtract(emit.Convert(diagonal, wide), forgotten);
  return emit.Multiply(kept, emit.SpreadFirst(alpha, kept));
}

// Every S_t: [batch, seq, heads, value_dim, key_dim].
NodeId Memories(Emitter& emit, NodeId k, NodeId v) {
  const NodeId beta = emit.Unary(OpKind::kLogistic, emit.Widen(Project(emit, emit.operand(), "beta")));
  const NodeId written = emit.Multiply(v, emit.SpreadFirst(beta, v));
  const NodeId update = Outer(emit, written, k, emit.AxisOf(v, 3).name);
  std::vector<Axis> first = emit.AxesOf(update);
  if (first.size() > 1) first.erase(first.begin() + 1);
  const NodeId memory = emit.with_state() ? emit.State(3) : emit.Constant(0, {emit.DTypeOf(v), first});
  const NodeId all = emit.Scan(memory, Fading(emit, k, beta), update, ScanAttrs::MATRIX);
  if (emit.with_state()) emit.SetState(3, emit.Reshape(emit.Slice(emit.Reverse(all, 1), 1, 0, 1), first));
  return all;
}

NodeId Decompose(Emitter& emit) {
  emit.NeedsSequence();
  const DeltaRuleAttrs& attrs = emit.attrs().delta_rule();
  const DType dtype = emit.DTypeOf(emit.operand());
  const NodeId v = Mixed(emit, "v", {"v_taps", "", 2});
  const Axis heads = emit.AxisOf(v, 2);
  const NodeId q = emit.Scale(UnitPerHead(emit, Mixed(emit, "q", {"q_taps", "", 0}), heads), attrs.scale());
  const NodeId k = UnitPerHead(emit, Mixed(emit, "k", {"k_taps", "", 1}), heads);
  const NodeId read =
      emit.Dot(Memories(emit, k, v), q,
               {.x_batch = {0, 1, 2}, .y_batch = {0, 1, 2}, .x_contract = {4}, .y_contract = {3}});
  const NodeId normal = Normalize(emit, read, {"norm", attrs.norm_eps()});
  const NodeId z = emit.Widen(Project(emit, emit.operand(), "z"));
  return Project(emit, emit.Convert(emit.Multiply(normal, Activate(emit, SILU, z)), dtype), "o");
}

}  // namespace

const CompositeOp kDeltaRuleOp = {Infer, Check, Decompose, State};

}  // namespace twinforge
