// Logits of the real vocabulary: softcap(scale * (x head + bias)). What leaves the graph never shows padding.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ir/ops/common.h"
#include "ir/ops/composite.h"
#include "ir/ops/shapes.h"

namespace twinforge {
namespace {

absl::StatusOr<Type> Infer(const Graph& graph, const Node& node) {
  TWIN_ASSIGN_OR_RETURN(Type result, Through(graph, node, "head", "head"));
  Axis& vocab = result.axes.back();
  if (vocab.logical != 0) vocab.size = Dim(vocab.logical);
  vocab.logical = 0;
  return result;
}

absl::Status Check(const Graph&, const Node& node) {
  const LmHeadAttrs& attrs = node.attrs->lm_head();
  if (IsNotNegative(attrs.softcap()) && std::isfinite(attrs.scale())) return absl::OkStatus();
  return Misfit(node, absl::StrCat("softcap is ", attrs.softcap(), ", scale ", attrs.scale()));
}

NodeId Decompose(Emitter& emit) {
  const LmHeadAttrs& attrs = emit.attrs().lm_head();
  NodeId logits = Project(emit, emit.operand(), "head", "bias");
  const ParamAxis& vocab = emit.TypeOfParam("head").axes.back();
  if (vocab.padded()) logits = emit.Slice(logits, -1, 0, vocab.logical);
  if (attrs.has_scale()) logits = emit.Scale(logits, attrs.scale());
  return SoftCap(emit, logits, attrs.softcap());
}

}  // namespace

const CompositeOp kLmHeadOp = {Infer, Check, Decompose};

}  // namespace twinforge
