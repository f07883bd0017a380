// The whole proof of a twin, and where its fault is.
//
//   structure  the recipe, run again, gives the recorded graph; graph, programs, config and ledger agree
//   bytes      every file and every tensor is what those programs make of the source (exporters/prove.h)
//   algebra    source and twin compute one function (function.h)
//   claims     what was rounded lost no more than is claimed, tensor by tensor and as a whole (rounding.h)
//
// The chain: bytes are the programs', the programs are the recipe's, the recipe keeps the function. A link
// that could not be looked at leaves the whole INCOMPLETE.
#ifndef TWINFORGE_PROOF_PROVE_H_
#define TWINFORGE_PROOF_PROVE_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "exporters/prove.h"
#include "proof/function.h"
#include "proof/locate.h"
#include "proof/rounding.h"

namespace twinforge {

struct RoundingProof {
  Verdict verdict = Verdict::kIncomplete;
  std::string reason;                  // why not proven
  double bound = 0;                    // claimed; 0: what storing each tensor in its dtype loses
  std::vector<RoundedTensor> rounded;  // tensors that are computed; those that move lose nothing
  ThreeWay three_way;
};

struct TwinProof {
  Verdict verdict = Verdict::kIncomplete;
  ProofReport rows;  // of structure and bytes, one by one
  Verdict structure = Verdict::kProven;
  Verdict bytes = Verdict::kProven;
  FunctionProof algebra;
  RoundingProof claims;
  std::optional<FaultPlace> fault;  // of the first argument that fails: algebra, structure, bytes, claims
};

struct TwinProofRequest {
  Model source;  // as imported
  const TwinManifest& manifest;
  const StoredTwin& stored;
  const std::vector<std::string>& adapters;  // see recipe_again.h
  const ExportOptions& options;
  const std::function<void(const Progress&)>& progress;
};

// Statuses are for what keeps us from looking (I/O, memory); a twin that is wrong is a verdict.
absl::StatusOr<TwinProof> ProveTwin(TwinProofRequest request);

// Whether a row's check belongs to the structure; the others are about bytes.
bool IsStructure(absl::string_view check);

}  // namespace twinforge

#endif  // TWINFORGE_PROOF_PROVE_H_
