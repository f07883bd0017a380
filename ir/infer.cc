// Result types. What an op needs of its operand is the size of the axes that its
// parameters contract; names are the parameter's own, so that a square linear may call
// its result's axis what the next op calls its operand's.
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "ir/infer_primitive.h"
#include "ir/ops/composite.h"
#include "ir/ops/shapes.h"
#include "ir/verify.h"

namespace twinforge {

absl::StatusOr<Type> InferType(const Graph& graph, const Node& node) {
  if (node.op == OpKind::kInput) return node.type;
  const OpInfo& info = Info(node.op);
  const int given = static_cast<int>(node.operands.size());
  const bool many = info.optional_operands < 0;
  if (given < info.operands || (!many && given > info.operands + info.optional_operands)) {
    return Misfit(node, absl::StrCat(info.name, " takes ", info.operands,
                                     many ? " or more"
                                     : info.optional_operands != 0
                                         ? absl::StrCat(" to ", info.operands + info.optional_operands)
                                         : "",
                                     " operands, not ", given));
  }
  if (info.composite != nullptr) return info.composite->infer(graph, node);
  return InferPrimitive(graph, node);
}

}  // namespace twinforge
