// Result types of primitives; the part of InferType that needs no definition of a composite.
#ifndef TWINFORGE_IR_INFER_PRIMITIVE_H_
#define TWINFORGE_IR_INFER_PRIMITIVE_H_

#include "absl/status/statusor.h"
#include "ir/graph.h"

namespace twinforge {

// TF1501 where operands or attributes do not fit. REQUIRES: a primitive with as many operands as its row
// says.
absl::StatusOr<Type> InferPrimitive(const Graph& graph, const Node& node);

}  // namespace twinforge

#endif  // TWINFORGE_IR_INFER_PRIMITIVE_H_
