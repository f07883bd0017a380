// Terms become the house's graph: blocks by what their parts are, layers by their order, names by role.
#ifndef TWINFORGE_IMPORTERS_ONNX_ASSEMBLE_H_
#define TWINFORGE_IMPORTERS_ONNX_ASSEMBLE_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "importers/onnx/trace.h"
#include "ir/graph.h"

namespace twinforge {

// The graph from tokens to the first output. Others must be keys and values for later calls, which the graph
// carries as state; `windows` are of attentions, in the order of their terms, where
// the trace is too short to show them. TF2010 names the node that no block holds, and the nearest miss.
absl::StatusOr<Graph> AssembleGraph(const OnnxTrace& trace, const std::map<int, int64_t>& windows);

}  // namespace twinforge

#endif  // TWINFORGE_IMPORTERS_ONNX_ASSEMBLE_H_
