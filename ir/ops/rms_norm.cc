// x / sqrt(mean of squares + eps) * (offset + scale), in f32 or wider (Zhang and Sennrich 2019,
// arXiv:1910.07467).
#include "ir/ops/common.h"
#include "ir/ops/composite.h"
#include "ir/ops/shapes.h"

namespace twinforge {
namespace {

absl::StatusOr<Type> Infer(const Graph& graph, const Node& node) { return AlongLast(graph, node, "scale"); }

NodeId Decompose(Emitter& emit) {
  const NormAttrs& attrs = emit.attrs().norm();
  return Normalize(emit, emit.operand(), {"scale", attrs.eps(), attrs.offset(), attrs.norm_dim()});
}

}  // namespace

const CompositeOp kRmsNormOp = {Infer, VerifyNorm, Decompose};

}  // namespace twinforge
