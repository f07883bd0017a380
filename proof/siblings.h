// What is odd about a faulty block: how it differs from its like in layers where nothing is wrong.
//
// A step touches every parameter of a block, and which of them it got wrong the block alone does not tell.
// Most faults are in some layers and not in all, and there the same step did right by the same parameters.
#ifndef TWINFORGE_PROOF_SIBLINGS_H_
#define TWINFORGE_PROOF_SIBLINGS_H_

#include <string>
#include <vector>

#include "ir/graph.h"

namespace twinforge {

// Those of `roles` (parameters of the block at `path`, or the path itself for its attributes) that are not as
// in the first sound block of the same kind; all of them where there is none, or where it shows no
// difference.
std::vector<std::string> OddOnes(const Graph& source, const Graph& twin, const std::string& path,
                                 std::vector<std::string> roles, uint64_t seed);

}  // namespace twinforge

#endif  // TWINFORGE_PROOF_SIBLINGS_H_
