// Where a twin stops computing its source's function: the recipe's step, then the layer, then the role.
//
// Steps are bisected: the first graph of the trace that departs from the source names the step. Within it,
// one evaluation of both graphs gives every block's value, and the first that departs names the layer; norms
// are passed over, since a step may move their scales into the next block. The role is what the step, or
// whoever changed the twin afterwards, changed in that block.
#ifndef TWINFORGE_PROOF_LOCATE_H_
#define TWINFORGE_PROOF_LOCATE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/graph.h"
#include "proof/steps.h"

namespace twinforge {

struct FaultPlace {
  std::string step;   // "2 pad_vocab"; "" where no step is to blame
  std::string layer;  // "layers.3"; "" outside the layers (embedding, head)
  std::string node;   // "layers.3.attn": the block
  std::string role;   // "layers.3.attn.q", several joined by ", ", or the block itself
  std::string what;   // in words
};

// The paths of the values that are compared, in graph order: every block but norms.
std::vector<std::string> WatchedNodes(const Graph& graph);

// REQUIRES: trace.graphs[0] and `twin` differ in function, or the outputs of the last graph of the trace do
// from the first's. `twin` is the graph that the twin has, which the trace's last graph need not be.
absl::StatusOr<FaultPlace> LocateFault(const StepTrace& trace, const Graph& twin, uint64_t seed);

}  // namespace twinforge

#endif  // TWINFORGE_PROOF_LOCATE_H_
