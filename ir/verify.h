// Whether a graph is well formed: run after every step in debug builds, always before export.
//
// Checks: operands come before their users; paths and roles are unique; each node has the
// slots its op requires and no others; each parameter's axes are those of its slot (lead ;
// in -> out, in order); one axis name has one size and one logical size within a node, and d_model,
// vocab agree along edges; programs have their parameter's shape and dtype; logical <=
// size; storage and bundles name what exists, shards divide; attributes are in range
// (rotary_dim even and <= head_dim, top_k <= experts, eps >= 0, heads % kv_heads == 0).
#ifndef TWINFORGE_IR_VERIFY_H_
#define TWINFORGE_IR_VERIFY_H_

#include "absl/status/status.h"
#include "ir/graph.h"

namespace twinforge {

// The first fault, as a diagnostic (TF1501) whose place is the node's path or parameter's role.
absl::Status Verify(const Graph& graph);

// The result type of a node from its operands' types, its attributes and parameters; used
// by Builder and Rewriter. An error names the axis that does not fit.
absl::StatusOr<Type> InferType(const Graph& graph, const Node& node);

// The part of it that is about one bundle: members of one dtype, lying alike, that its shards divide.
absl::Status VerifyBundle(const Graph& graph, const Bundle& bundle);

}  // namespace twinforge

#endif  // TWINFORGE_IR_VERIFY_H_
