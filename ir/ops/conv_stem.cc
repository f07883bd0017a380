// act(convolution of x with kernel + bias): frames of sound or patches of an image become channels.
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "ir/ops/common.h"
#include "ir/ops/composite.h"
#include "ir/ops/shapes.h"

namespace twinforge {
namespace {

// What the convolution itself infers, on a graph of its own: one rule for both.
absl::StatusOr<Type> Infer(const Graph& graph, const Node& node) {
  TWIN_ASSIGN_OR_RETURN(const Param* kernel, ParamIn(graph, node, "kernel"));
  const Type& x = OperandType(graph, node);
  Type weights{x.dtype, {}};
  for (const ParamAxis& axis : kernel->type.axes) weights.axes.push_back(ActivationAxis(axis));
  Builder alone("conv");
  OpAttrs attrs;
  *attrs.mutable_conv() = node.attrs->conv_stem().conv();
  const NodeId y = alone.Op(OpKind::kConv, "y", {alone.Input("x", x), alone.Input("kernel", weights)},
                            std::move(attrs), {});
  if (!alone.status().ok()) return WithPlace(alone.status(), absl::StrCat(node.path, ": "));
  return alone.TypeOf(y);
}

absl::Status Check(const Graph&, const Node& node) {
  const Activation act = node.attrs->conv_stem().act();
  if (act == ACTIVATION_UNSET || IsActivation(act)) return absl::OkStatus();
  return Misfit(node, "no activation that is known");
}

NodeId Decompose(Emitter& emit) {
  const ConvStemAttrs& attrs = emit.attrs().conv_stem();
  const NodeId x = emit.operand();
  const NodeId kernel = emit.Convert(emit.Param("kernel"), emit.DTypeOf(x));
  const NodeId y = AddBias(emit, emit.Conv(x, kernel, attrs.conv()), "bias");
  return attrs.act() == ACTIVATION_UNSET ? y : Activate(emit, attrs.act(), y);
}

}  // namespace

const CompositeOp kConvStemOp = {Infer, Check, Decompose};

}  // namespace twinforge
