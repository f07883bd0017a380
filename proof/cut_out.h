// One block of a model as a model of its own: the smallest thing in which a fault still shows.
//
//   layers.3.attn of a twin            graph layers.3.attn(x0: f64[batch, seq, d_model=12]) -> (out: ...)
//
// Its operands become inputs, its result the output; its parameters keep their roles and programs.
#ifndef TWINFORGE_PROOF_CUT_OUT_H_
#define TWINFORGE_PROOF_CUT_OUT_H_

#include <string>

#include "absl/status/statusor.h"
#include "ir/graph.h"

namespace twinforge {

// TF1501 where the node cannot stand alone. REQUIRES: `path` is a node of `graph` with operands.
absl::StatusOr<Graph> CutOutNode(const Graph& graph, const std::string& path);

// A refuted pair as text, to be read and to be tried again: both blocks where the fault shows in the block
// alone, else both graphs whole.
std::string SmallestCase(const Graph& source, const Graph& twin, const std::string& path, uint64_t seed);

}  // namespace twinforge

#endif  // TWINFORGE_PROOF_CUT_OUT_H_
