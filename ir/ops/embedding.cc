// table[tokens] * scale + type_table[types] + position_table[positions + offset]
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ir/ops/common.h"
#include "ir/ops/composite.h"
#include "ir/ops/shapes.h"

namespace twinforge {
namespace {

absl::StatusOr<Type> Infer(const Graph& graph, const Node& node) {
  TWIN_ASSIGN_OR_RETURN(const Param* table, ParamIn(graph, node, "table"));
  if (table->type.axes.size() != 2) return Misfit(node, "the table is not a matrix");
  const Type& tokens = OperandType(graph, node);
  if (!IsInteger(tokens.dtype)) return Misfit(node, absl::StrCat(Text(tokens), " are no tokens"));
  Type result{table->type.dtype, tokens.axes};
  result.axes.push_back(ActivationAxis(table->type.axes[1]));
  return result;
}

absl::Status Check(const Graph&, const Node& node) {
  const EmbeddingAttrs& attrs = node.attrs->embedding();
  if (std::isfinite(attrs.scale()) && attrs.position_offset() >= 0) return absl::OkStatus();
  return Misfit(node,
                absl::StrCat("scale is ", attrs.scale(), ", position_offset ", attrs.position_offset()));
}

NodeId Decompose(Emitter& emit) {
  const EmbeddingAttrs& attrs = emit.attrs().embedding();
  NodeId x = emit.Gather(emit.Param("table"), emit.operand(), 0);
  const DType dtype = emit.DTypeOf(x);
  if (attrs.has_scale()) x = emit.Scale(x, attrs.scale());
  if (emit.Has("type_table")) {
    x = emit.Add(x, emit.Gather(emit.Convert(emit.Param("type_table"), dtype), emit.TokenTypes(), 0));
  }
  if (emit.Has("position_table")) {
    NodeId places = emit.Positions();
    if (attrs.position_offset() != 0) {
      places = emit.Shift(places, static_cast<double>(attrs.position_offset()));
    }
    x = emit.Add(x, emit.Gather(emit.Convert(emit.Param("position_table"), dtype), places, 0));
  }
  return x;
}

}  // namespace

const CompositeOp kEmbeddingOp = {Infer, Check, Decompose};

}  // namespace twinforge
