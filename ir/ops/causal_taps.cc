#include "ir/ops/causal_taps.h"

#include "absl/strings/str_cat.h"
#include "ir/ops/common.h"
#include "ir/ops/shapes.h"

namespace twinforge {
namespace {

// The last `count` values along axis 1.
NodeId Tail(Emitter& emit, NodeId x, int64_t count) {
  const NodeId kept = emit.Slice(emit.Reverse(x, 1), 1, 0, count);
  return emit.Rename(emit.Reverse(kept, 1), 1, "window");
}

// All axes after the first two as one.
NodeId Flat(Emitter& emit, NodeId x, int64_t channels) {
  return emit.Reshape(x, {emit.AxisOf(x, 0), emit.AxisOf(x, 1), Axis{"channels", Dim(channels)}});
}

}  // namespace

NodeId CausalTaps(Emitter& emit, NodeId x, const TapsSlots& slots) {
  const ParamType& type = emit.TypeOfParam(slots.taps);
  const int64_t taps = type.axes[0].size;
  int64_t channels = 1;
  for (size_t i = 1; i < type.axes.size(); ++i) channels *= type.axes[i].size;
  const std::vector<Axis> axes = emit.AxesOf(x);
  ConvAttrs conv;
  conv.add_strides(1);
  conv.add_high(0);
  conv.set_groups(channels);
  NodeId all = x;
  if (emit.with_state()) {
    conv.add_low(0);
    all = emit.Concat({emit.State(slots.state), x}, 1);
    emit.SetState(slots.state, Tail(emit, all, taps - 1));
  } else {
    conv.add_low(taps - 1);
  }
  const NodeId kernel =
      emit.Reshape(emit.Convert(emit.Param(slots.taps), emit.DTypeOf(x)),
                   {Axis{"tap", Dim(taps)}, Axis{"one", Dim(1)}, Axis{"channels", Dim(channels)}});
  const NodeId y = emit.Reshape(emit.Conv(Flat(emit, all, channels), kernel, conv), axes);
  return AddBias(emit, y, slots.bias);
}

NodeId Mixed(Emitter& emit, absl::string_view slot, const TapsSlots& taps) {
  const NodeId projected = Project(emit, emit.operand(), slot);
  return emit.Widen(Activate(emit, SILU, CausalTaps(emit, projected, taps)));
}

NodeId PerHead(Emitter& emit, NodeId x, const Axis& heads) {
  const int64_t groups = emit.AxisOf(x, 2).size.value().value_or(1);
  const Axis shared{"shared", Dim(heads.size.value().value_or(1) / groups)};
  const Axis batch = emit.AxisOf(x, 0), seq = emit.AxisOf(x, 1), channels = emit.AxisOf(x, 3);
  const NodeId repeated = emit.Broadcast(x, {batch, seq, emit.AxisOf(x, 2), shared, channels}, {0, 1, 2, 4});
  return emit.Reshape(repeated, {batch, seq, heads, channels});
}

absl::Status NeedsTaps(const Graph& graph, const Node& node, absl::string_view taps) {
  if (graph.param(node, taps).type.axes[0].size >= 2) return absl::OkStatus();
  return Misfit(node, absl::StrCat(taps, " is of one tap"));
}

StateSlot TapsState(const Graph& graph, const Node& node, absl::string_view taps, const std::string& name) {
  const Type& x = OperandType(graph, node);
  const ParamType& type = graph.param(node, taps).type;
  StateSlot slot{name, Type{x.dtype, {x.axes[0], Axis{"window", Dim(type.axes[0].size - 1)}}}};
  for (size_t i = 1; i < type.axes.size(); ++i) slot.type.axes.push_back(ActivationAxis(type.axes[i]));
  return slot;
}

}  // namespace twinforge
