// What a compile record adds to other verbs: whether a twin is attainable, and the rung that was compiled.
#ifndef TWINFORGE_CLI_ATTAINABLE_H_
#define TWINFORGE_CLI_ATTAINABLE_H_

#include <string>

#include "absl/status/status.h"
#include "cli/verb.h"
#include "cost/workload.h"
#include "ir/graph.h"

namespace twinforge {

// Adds to `outcome` whether the TPU compiler takes the programs of the twin in `folder`: only where the
// record beside it is of these very programs and has each of them compiled. Else a finding with the reason.
// TF2108 and TF2111 for a record that is none or cannot be true.
absl::Status SayAttainable(const std::string& folder, Outcome& outcome);

// Adds the compiler's cycles to a score: as a rung "compiled" of class C beside R2 to R4 where a clock is
// published, else in cycles alone. `path`: a record of `graph` for this chip and step; TF2109 where it is of
// another. Nothing where `path` is empty.
absl::Status SayCompiled(const std::string& path, const Graph& graph, const std::string& chip,
                         const Workload& workload, Outcome& outcome);

// Adds the rung of the record that lies in `folder` (empty: there is none) in the same way; one of another
// step, and none, is said with its reason in place of the rung.
absl::Status SayLadder(const std::string& folder, const Graph& graph, const std::string& chip,
                       const Workload& workload, Outcome& outcome);

}  // namespace twinforge

#endif  // TWINFORGE_CLI_ATTAINABLE_H_
