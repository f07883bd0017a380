// Trials that reach every path of a model: the ends of its vocabulary, the far side of a window, the length
// at which scaled rotary tables change, more than one sequence, tokens that come one after the other; quiet
// values and loud ones; and where tokens choose experts, several routers, so that each expert is chosen.
#ifndef TWINFORGE_PROOF_INPUTS_H_
#define TWINFORGE_PROOF_INPUTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "eval/tensor.h"
#include "ir/graph.h"
#include "proof/values.h"

namespace twinforge {

struct ProofTrial {
  std::string name;  // "2 x 11 tokens", "then 2 x 1"
  NamedTensors inputs;
  bool continues = false;  // goes on where the trial before it left off, with the same values
  uint64_t seed = 0;       // of the stored values
  Loudness loudness = Loudness::kQuiet;
};

// For `graph` and every twin of it: the same names and logical extents. Tokens that go on from others, and
// types of tokens, only where `twin` takes them too (eval/whole_sequence.h). TF1901 for an input of another
// kind than [batch, seq] of whole numbers or values with a sequence.
absl::StatusOr<std::vector<ProofTrial>> TrialsFor(const Graph& graph, const Graph& twin, uint64_t seed);

// Positions of the longest trial.
int64_t LongestTrial(const Graph& graph);

}  // namespace twinforge

#endif  // TWINFORGE_PROOF_INPUTS_H_
