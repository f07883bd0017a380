// (x - mean) / sqrt(variance + eps) * (offset + scale) + bias, in f32 or wider (Ba et al. 2016,
// arXiv:1607.06450).
#include "ir/ops/common.h"
#include "ir/ops/composite.h"
#include "ir/ops/shapes.h"

namespace twinforge {
namespace {

absl::StatusOr<Type> Infer(const Graph& graph, const Node& node) { return AlongLast(graph, node, "scale"); }

// x less the mean of its first `width` places, and 0 in those after them.
NodeId Centre(Emitter& emit, NodeId x, int64_t width, int64_t size) {
  const bool whole = width == size;
  const NodeId at = whole ? -1 : emit.Iota({DType::kI32, emit.AxesOf(x)}, emit.Rank(x) - 1);
  const auto only = [&](NodeId value) {
    if (whole) return value;
    const NodeId counted = emit.Compare(CompareAttrs::LT, at, emit.Like(at, static_cast<double>(width)));
    return emit.Select(counted, value, emit.Like(value, 0));
  };
  const NodeId sum = emit.ReduceLast(ReduceAttrs::SUM, only(x));
  const NodeId mean = emit.Divide(sum, emit.Like(sum, static_cast<double>(width)));
  return only(emit.Subtract(x, emit.SpreadFirst(mean, x)));
}

// All in f32 or wider, rounded once.
NodeId Decompose(Emitter& emit) {
  const NormAttrs& attrs = emit.attrs().norm();
  const ParamAxis& axis = emit.TypeOfParam("scale").axes[0];
  const int64_t width = attrs.norm_dim() != 0 ? attrs.norm_dim() : axis.logical;
  const NodeId x = emit.operand();
  const NodeId wide = Centre(emit, emit.Widen(x), width, axis.size);
  const NodeId y = Normalize(emit, wide, {"scale", attrs.eps(), attrs.offset(), width});
  return emit.Convert(AddBias(emit, y, "bias"), emit.DTypeOf(x));
}

}  // namespace

const CompositeOp kLayerNormOp = {Infer, VerifyNorm, Decompose};

}  // namespace twinforge
