// Whether a twin's bytes are what its manifest says, made from the very source at hand.
//
//   headers    the source's files are those that the manifest names, tensor by tensor, its texts those it
//              keeps
//   files      every file of the twin has the length and hash that the manifest says, and its folder has no
//              other entry
//   structure  the graph is well formed; each tensor's program is the one its layout gives for it;
//              config.json is what the graph says; every source tensor is accounted for; what a twin carries
//              along is carried
//   forward    every tensor of the twin, computed anew from the source, equals what is stored
//   inverse    every source tensor that only moved, computed from the twin, equals the source, bit for bit
//
// That the recipe in the manifest gives this graph is checked where recipes are known: proof/recipe_again.h.
//
// Full size, streamed, in the memory that ExportOptions gives. What is not proven here: that the graph
// computes the same function as the source's (that is the algebra's proof), and anything about a chip's
// rounding.
#ifndef TWINFORGE_EXPORTERS_PROVE_H_
#define TWINFORGE_EXPORTERS_PROVE_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "exporters/exporter.h"
#include "exporters/manifest.h"
#include "exporters/twin.h"
#include "ir/model.h"

namespace twinforge {

enum class Verdict {
  kProven,
  kRefuted,     // a check failed: the rows say which and where
  kIncomplete,  // nothing failed, but something could not be looked at
};
absl::string_view VerdictName(Verdict verdict);  // "PROVEN"

struct ProofRow {
  std::string check;    // "headers", "files", "structure", "forward", "inverse"
  std::string subject;  // file, tensor or role
  Verdict verdict = Verdict::kProven;
  std::string detail;  // of a failure: the element and both values; else "" or what was looked at
};

struct ProofReport {
  Verdict verdict = Verdict::kProven;
  std::vector<ProofRow> rows;  // failures and what is incomplete first; then one row per thing checked
  int64_t bytes_checked = 0;
  int64_t tensors_forward = 0;
  int64_t tensors_inverse = 0;  // MOVED, turned back and compared bit for bit
};

// `source` is the model as imported, no recipe applied. Statuses are for what keeps us from
// looking (I/O, memory); a twin that is wrong is a verdict.
absl::StatusOr<ProofReport> Prove(const Model& source, const TwinManifest& manifest, const StoredTwin& stored,
                                  const ExportOptions& options,
                                  const std::function<void(const Progress&)>& progress);

// Adds a row and draws the verdict anew.
void AddProofRow(ProofRow row, ProofReport& report);

}  // namespace twinforge

#endif  // TWINFORGE_EXPORTERS_PROVE_H_
