// The part of Verify that knows what each op's attributes mean.
#ifndef TWINFORGE_IR_VERIFY_ATTRS_H_
#define TWINFORGE_IR_VERIFY_ATTRS_H_

#include "absl/status/status.h"
#include "ir/graph.h"

namespace twinforge {

// Whether the attributes of `node` are in range and agree with its parameters.
// REQUIRES: the node's slots, axes and kind of attributes were verified.
absl::Status VerifyAttrs(const Graph& graph, const Node& node);

}  // namespace twinforge

#endif  // TWINFORGE_IR_VERIFY_ATTRS_H_
