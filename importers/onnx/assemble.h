// Terms become the house's graph: blocks by what their parts are, layers by their order, names by role.
#ifndef TWINFORGE_IMPORTERS_ONNX_ASSEMBLE_H_
#define TWINFORGE_IMPORTERS_ONNX_ASSEMBLE_H_

#include <map>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "importers/onnx/trace.h"
#include "ir/graph.h"

namespace twinforge {

struct AssembledGraph {
  Graph graph;
  std::set<int32_t> passed;  // outputs of the file that the graph carries without saying them: caches
};

// The graph from tokens to the first output; `windows` are of attentions, in the order of their terms, where
// the trace is too short to show them. TF2010 names the node that no block holds, and the nearest miss.
absl::StatusOr<AssembledGraph> AssembleGraph(const OnnxTrace& trace, const std::map<int, int64_t>& windows);

}  // namespace twinforge

#endif  // TWINFORGE_IMPORTERS_ONNX_ASSEMBLE_H_
