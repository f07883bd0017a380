// From the parsed message to a checked model: scopes, slots, order, functions (codes in read.h).
#ifndef TWINFORGE_ONNX_CHECK_GRAPH_H_
#define TWINFORGE_ONNX_CHECK_GRAPH_H_

#include "absl/status/status.h"
#include "onnx/model.h"

namespace twinforge {

// Fills graph, subgraphs, functions and opsets of `model` from its message.
absl::Status CheckModel(OnnxModel& model);

// Nodes in an order in which each follows what it takes, stable where several may come next; TF2002 names the
// nodes of a circle. last_use is filled.
absl::Status SortNodes(OnnxGraph& graph, const std::string& place);

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_CHECK_GRAPH_H_
