// Mamba 2 (Dao and Gu 2024, arXiv:2405.21060). Per head, with a state h [head_dim, state]:
//
//   x, b, c = silu(taps(projections))     step = softplus(dt + dt_bias), clamped
//   h_t = exp(-exp(a_log) step_t) h_{t-1} + step_t x_t b_t^T
//   y_t = h_t c_t + skip x_t
//   out = (rms_norm(y silu(z)) * norm) o          the norm is over all heads together
//
// The recurrence is in f32 or wider. Heads share b and c in groups of neighbours.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ir/ops/causal_taps.h"
#include "ir/ops/common.h"
#include "ir/ops/composite.h"
#include "ir/ops/shapes.h"

namespace twinforge {
namespace {

absl::StatusOr<Type> Infer(const Graph& graph, const Node& node) { return Through(graph, node, "x", "o"); }

absl::Status Check(const Graph& graph, const Node& node) {
  const StateSpaceAttrs& attrs = node.attrs->state_space();
  const int64_t heads = graph.param(node, "x").type.Get("heads").size;
  const int64_t groups = graph.param(node, "b").type.Get("state_groups").size;
  if (heads % groups != 0) {
    return Misfit(node, absl::StrCat("heads ", heads, " is not a multiple of state_groups ", groups));
  }
  for (const char* taps : {"x_taps", "b_taps", "c_taps"}) TWIN_RETURN_IF_ERROR(NeedsTaps(graph, node, taps));
  if (!IsNotNegative(attrs.norm_eps())) return Misfit(node, absl::StrCat("norm_eps is ", attrs.norm_eps()));
  if (IsNotNegative(attrs.min_step()) && IsNotNegative(attrs.max_step())) return absl::OkStatus();
  return Misfit(node, absl::StrCat("steps from ", attrs.min_step(), " to ", attrs.max_step()));
}

std::vector<StateSlot> State(const Graph& graph, const Node& node) {
  if (!HasSequence(graph, node)) return {};
  const Type& x = OperandType(graph, node);
  const ParamType& heads = graph.param(node, "x").type;
  const DType wide = x.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  return {TapsState(graph, node, "x_taps", "x_window"),
          TapsState(graph, node, "b_taps", "b_window"),
          TapsState(graph, node, "c_taps", "c_window"),
          {"h", Type{wide,
                     {x.axes[0], ActivationAxis(heads.Get("heads")), ActivationAxis(heads.Get("head_dim")),
                      ActivationAxis(graph.param(node, "b").type.Get("state"))}}}};
}

NodeId Steps(Emitter& emit, const StateSpaceAttrs& attrs) {
  const NodeId dt = emit.Widen(AddBias(emit, Project(emit, emit.operand(), "dt"), "dt_bias"));
  NodeId step = SoftPlus(emit, dt);
  step = emit.Maximum(step, emit.Like(step, attrs.min_step()));
  return attrs.max_step() == 0 ? step : emit.Minimum(step, emit.Like(step, attrs.max_step()));
}

// The scan of h over positions: [batch, seq, heads, head_dim, state].
NodeId States(Emitter& emit, NodeId x, NodeId b, NodeId step) {
  std::vector<Axis> axes = emit.AxesOf(x);
  axes.push_back(emit.AxisOf(b, -1));
  const DType wide = emit.DTypeOf(x);
  const NodeId rate = emit.Unary(OpKind::kExp, emit.Convert(emit.Param("a_log"), wide));
  const NodeId fading = emit.Multiply(step, emit.SpreadLast(emit.Unary(OpKind::kNegate, rate), step));
  const NodeId decay = emit.Broadcast(emit.Unary(OpKind::kExp, fading), axes, {0, 1, 2});
  const NodeId fed = emit.Multiply(x, emit.SpreadFirst(step, x));
  const NodeId update =
      emit.Multiply(emit.Broadcast(fed, axes, {0, 1, 2, 3}), emit.Broadcast(b, axes, {0, 1, 2, 4}));
  std::vector<Axis> first = axes;
  if (first.size() > 1) first.erase(first.begin() + 1);
  const NodeId h = emit.with_state() ? emit.State(3) : emit.Constant(0, {wide, first});
  const NodeId all = emit.Scan(h, decay, update, ScanAttrs::ELEMENTWISE);
  if (emit.with_state()) emit.SetState(3, emit.Reshape(emit.Slice(emit.Reverse(all, 1), 1, 0, 1), first));
  return all;
}

NodeId Decompose(Emitter& emit) {
  emit.NeedsSequence();
  const StateSpaceAttrs& attrs = emit.attrs().state_space();
  const DType dtype = emit.DTypeOf(emit.operand());
  const NodeId x = Mixed(emit, "x", {"x_taps", "x_taps_bias", 0});
  const Axis heads = emit.AxisOf(x, 2);
  const NodeId b = PerHead(emit, Mixed(emit, "b", {"b_taps", "b_taps_bias", 1}), heads);
  const NodeId c = PerHead(emit, Mixed(emit, "c", {"c_taps", "c_taps_bias", 2}), heads);
  const NodeId h = States(emit, x, b, Steps(emit, attrs));
  NodeId y =
      emit.Dot(h, c, {.x_batch = {0, 1, 2}, .y_batch = {0, 1, 2}, .x_contract = {4}, .y_contract = {3}});
  const NodeId skip = emit.Convert(emit.Param("skip"), emit.DTypeOf(x));
  y = emit.Add(y, emit.Multiply(x, emit.Broadcast(skip, emit.AxesOf(x), {2})));
  const NodeId z = emit.Widen(Project(emit, emit.operand(), "z"));
  const NodeId gated = emit.Multiply(y, Activate(emit, SILU, z));
  const NodeId sum = emit.Reduce(ReduceAttrs::SUM, emit.Multiply(gated, gated), {2, 3});
  const ParamType& norm = emit.TypeOfParam("norm");
  const double width = static_cast<double>(norm.axes[0].logical) * static_cast<double>(norm.axes[1].logical);
  const NodeId mean = emit.Divide(sum, emit.Like(sum, width));
  const NodeId r = emit.Unary(OpKind::kRsqrt, emit.Shift(mean, attrs.norm_eps()));
  const NodeId normal = emit.Multiply(gated, emit.SpreadFirst(r, gated));
  return Project(emit, ScaleBy(emit, normal, "norm", 0, dtype), "o");
}

}  // namespace

const CompositeOp kStateSpaceOp = {Infer, Check, Decompose, State};

}  // namespace twinforge
