// How result types follow from operands and parameters; for the definitions of composites and for InferType.
#ifndef TWINFORGE_IR_OPS_SHAPES_H_
#define TWINFORGE_IR_OPS_SHAPES_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ir/graph.h"

namespace twinforge {

// TF1501 at the node.
absl::Status Misfit(const Node& node, absl::string_view message);

// The parameter's axis as an activation's.
Axis ActivationAxis(const ParamAxis& axis);

// The parameter in a slot; a misfit where there is none.
absl::StatusOr<const Param*> ParamIn(const Graph& graph, const Node& node, absl::string_view slot);

// The type of operand 0, and of operand i.
const Type& OperandType(const Graph& graph, const Node& node, size_t i = 0);

// x kernel, where `first` is the slot of the kernel that reads x and `last` of the one that writes the
// result.
absl::StatusOr<Type> Through(const Graph& graph, const Node& node, absl::string_view first,
                             absl::string_view last);

// The operand, whose last axis the vector in `slot` must fit: norms.
absl::StatusOr<Type> AlongLast(const Graph& graph, const Node& node, absl::string_view slot);

// Whether operand 0 is [batch, seq, channels]: what mixes positions has no meaning without.
bool HasSequence(const Graph& graph, const Node& node);

// ---- for verifying attributes

bool IsPositive(double x);     // and finite
bool IsNotNegative(double x);  // and finite
// Some slots come together: all of `slots` or none.
absl::Status AllOrNone(const Node& node, std::initializer_list<absl::string_view> slots);
absl::Status NothingToVerify(const Graph& graph, const Node& node);

}  // namespace twinforge

#endif  // TWINFORGE_IR_OPS_SHAPES_H_
