// What a graph computes, by the plainest loops: the judge of "equal in real arithmetic".
//
// One sequence, everything in f64, whole tensors, one function per op written from the
// published formula. It reads attributes and physical parameters and knows nothing of padding except where
// ops.proto says that a logical size counts: the mean of q and k norms, the width of the logits.
// Frequency scaling of rotary embeddings is not here; the outside judge covers it.
#ifndef TWINFORGE_TESTS_TRANSFORMS_NAIVE_MODEL_H_
#define TWINFORGE_TESTS_TRANSFORMS_NAIVE_MODEL_H_

#include <vector>

#include "ir/graph.h"
#include "tests/support/naive_weights.h"

namespace twinforge {

// The first output at every position: [tokens][channels].
std::vector<std::vector<double>> NaiveOutput(const Graph& graph, const NaiveTensors& sources,
                                             const std::vector<int64_t>& tokens);

}  // namespace twinforge

#endif  // TWINFORGE_TESTS_TRANSFORMS_NAIVE_MODEL_H_
