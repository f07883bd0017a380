#include "ir/ops/common.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ir/ops/shapes.h"

namespace twinforge {

NodeId AddBias(Emitter& emit, NodeId x, absl::string_view slot) {
  if (slot.empty() || !emit.Has(slot)) return x;
  return emit.Add(x, emit.SpreadLast(emit.Convert(emit.Param(slot), emit.DTypeOf(x)), x));
}

NodeId Project(Emitter& emit, NodeId x, absl::string_view slot, absl::string_view bias) {
  const ParamType& type = emit.TypeOfParam(slot);
  Emitter::DotPlaces places;
  for (int i = 0; i < type.in; ++i) {
    places.x_contract.push_back(emit.Rank(x) - type.in + i);
    places.y_contract.push_back(type.lead + i);
  }
  const NodeId kernel = emit.Convert(emit.Param(slot), emit.DTypeOf(x));
  return AddBias(emit, emit.Dot(x, kernel, places), bias);
}

NodeId Softmax(Emitter& emit, NodeId x) {
  const NodeId wide = emit.Widen(x);
  const NodeId top = emit.ReduceLast(ReduceAttrs::MAX, wide);
  const NodeId e = emit.Unary(OpKind::kExp, emit.Subtract(wide, emit.SpreadFirst(top, wide)));
  return emit.Divide(e, emit.SpreadFirst(emit.ReduceLast(ReduceAttrs::SUM, e), e));
}

NodeId ScaleBy(Emitter& emit, NodeId x, absl::string_view slot, double offset, DType dtype) {
  const NodeId vector = emit.Param(slot);
  if (offset == 0) {
    x = emit.Convert(x, dtype);
    return emit.Multiply(x, emit.SpreadLast(emit.Convert(vector, dtype), x));
  }
  const NodeId shifted = emit.Shift(emit.Convert(vector, emit.DTypeOf(x)), offset);
  return emit.Convert(emit.Multiply(x, emit.SpreadLast(shifted, x)), dtype);
}

NodeId Normalize(Emitter& emit, NodeId x, const RmsSettings& settings) {
  const int64_t width =
      settings.width != 0 ? settings.width : emit.TypeOfParam(settings.slot).axes[0].logical;
  const NodeId wide = emit.Widen(x);
  const NodeId sum = emit.ReduceLast(ReduceAttrs::SUM, emit.Multiply(wide, wide));
  const NodeId mean = emit.Divide(sum, emit.Like(sum, static_cast<double>(width)));
  const NodeId r = emit.Unary(OpKind::kRsqrt, emit.Shift(mean, settings.eps));
  const NodeId y = emit.Multiply(wide, emit.SpreadFirst(r, wide));
  return ScaleBy(emit, y, settings.slot, settings.offset, emit.DTypeOf(x));
}

namespace {

// x * logistic(alpha x)
NodeId Swish(Emitter& emit, NodeId x, double alpha) {
  const NodeId turned = alpha == 1 ? x : emit.Scale(x, alpha);
  return emit.Multiply(x, emit.Unary(OpKind::kLogistic, turned));
}

NodeId Gelu(Emitter& emit, NodeId x, bool by_tanh) {
  NodeId inner;
  if (by_tanh) {
    const NodeId cube = emit.Multiply(emit.Multiply(x, x), x);
    const NodeId sum = emit.Add(x, emit.Scale(cube, 0.044715));
    inner = emit.Unary(OpKind::kTanh, emit.Scale(sum, std::sqrt(2 / M_PI)));
  } else {
    inner = emit.Unary(OpKind::kErf, emit.Scale(x, std::sqrt(0.5)));
  }
  return emit.Multiply(emit.Scale(x, 0.5), emit.Shift(inner, 1));
}

NodeId ActivateWide(Emitter& emit, Activation act, NodeId x) {
  switch (act) {
    case SILU:
      return Swish(emit, x, 1);
    case QUICK_GELU:
      return Swish(emit, x, 1.702);
    case GELU:
      return Gelu(emit, x, false);
    case GELU_TANH:
      return Gelu(emit, x, true);
    case RELU:
      return emit.Maximum(x, emit.Like(x, 0));
    case RELU2: {
      const NodeId positive = emit.Maximum(x, emit.Like(x, 0));
      return emit.Multiply(positive, positive);
    }
    case TANH:
      return emit.Unary(OpKind::kTanh, x);
    case SIGMOID:
      return emit.Unary(OpKind::kLogistic, x);
    default:  // unset, and the generated sentinels of an open enum
      break;
  }
  emit.Fail("no activation that is known");
  return -1;
}

}  // namespace

NodeId Activate(Emitter& emit, Activation act, NodeId x) {
  return emit.Convert(ActivateWide(emit, act, emit.Widen(x)), emit.DTypeOf(x));
}

NodeId Gate(Emitter& emit, const MlpAttrs& attrs, NodeId gate, NodeId up) {
  if (!attrs.has_clamp_limit()) return emit.Multiply(Activate(emit, attrs.act(), gate), up);
  const double limit = attrs.clamp_limit();
  gate = emit.Minimum(gate, emit.Like(gate, limit));
  up = emit.Maximum(emit.Minimum(up, emit.Like(up, limit)), emit.Like(up, -limit));
  return emit.Multiply(emit.Shift(up, attrs.up_offset()), Swish(emit, gate, attrs.clamp_alpha()));
}

NodeId SoftPlus(Emitter& emit, NodeId x) {
  const NodeId away = emit.Unary(OpKind::kNegate, emit.Unary(OpKind::kAbs, x));
  const NodeId rest = emit.Unary(OpKind::kLog, emit.Shift(emit.Unary(OpKind::kExp, away), 1));
  return emit.Add(emit.Maximum(x, emit.Like(x, 0)), rest);
}

NodeId SoftCap(Emitter& emit, NodeId x, double cap) {
  if (cap == 0) return x;
  return emit.Scale(emit.Unary(OpKind::kTanh, emit.Divide(x, emit.Like(x, cap))), cap);
}

bool IsActivation(Activation act) { return Activation_IsValid(act) && act != ACTIVATION_UNSET; }

absl::Status VerifyNorm(const Graph& graph, const Node& node) {
  const NormAttrs& attrs = node.attrs->norm();
  const int64_t size = graph.param(node, "scale").type.axes[0].size;
  if (attrs.norm_dim() < 0 || attrs.norm_dim() > size) {
    return Misfit(node, absl::StrCat("norm_dim ", attrs.norm_dim(), " of ", size, " places"));
  }
  if (IsNotNegative(attrs.eps()) && std::isfinite(attrs.offset())) return absl::OkStatus();
  return Misfit(node, absl::StrCat("eps is ", attrs.eps(), ", offset ", attrs.offset()));
}

absl::Status VerifyMlp(const Node& node, const MlpAttrs& attrs) {
  const bool clamped = attrs.act() == ACTIVATION_UNSET && attrs.has_clamp_limit();
  if (!clamped && !IsActivation(attrs.act())) return Misfit(node, "no activation that is known");
  if (attrs.has_clamp_limit() && !IsPositive(attrs.clamp_limit())) {
    return Misfit(node, absl::StrCat("clamp_limit is ", attrs.clamp_limit()));
  }
  if (!std::isfinite(attrs.clamp_alpha()) || !std::isfinite(attrs.up_offset())) {
    return Misfit(node, "clamp_alpha or up_offset is no finite number");
  }
  return absl::OkStatus();
}

absl::Status VerifyRope(const Node& node, const Rope& rope, int64_t head_dim) {
  if (rope.style() == Rope::ABSENT) return absl::OkStatus();
  if (rope.style() != Rope::HALVES && rope.style() != Rope::INTERLEAVED)
    return Misfit(node, "unknown rope style");
  if (!IsPositive(rope.theta())) return Misfit(node, absl::StrCat("rope theta is ", rope.theta()));
  if (rope.rotary_dim() < 2 || rope.rotary_dim() % 2 != 0 || rope.rotary_dim() > head_dim) {
    return Misfit(node, absl::StrCat("rotary_dim ", rope.rotary_dim(), " of a head of ", head_dim,
                                     ": it is even, at least 2 and no more than the head"));
  }
  const RopeScaling& scaling = rope.scaling();
  if (!RopeScaling::Kind_IsValid(scaling.kind())) return Misfit(node, "unknown rope scaling");
  if (scaling.kind() != RopeScaling::NONE && scaling.kind() != RopeScaling::LONGROPE &&
      !IsPositive(scaling.factor())) {
    return Misfit(node, absl::StrCat("rope scaling factor is ", scaling.factor()));
  }
  if (scaling.kind() == RopeScaling::LONGROPE && (scaling.short_factor_size() * 2 != rope.rotary_dim() ||
                                                  scaling.long_factor_size() * 2 != rope.rotary_dim())) {
    return Misfit(node, "longrope factors are not rotary_dim / 2 numbers each");
  }
  return absl::OkStatus();
}

}  // namespace twinforge
