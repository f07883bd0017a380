// Whether a manifest tells one story: what it says of the whole, of each tensor and of each source follows
// from its graph, its programs and the source at hand. No tensor's bytes are read.
#ifndef TWINFORGE_EXPORTERS_PROVE_STRUCTURE_H_
#define TWINFORGE_EXPORTERS_PROVE_STRUCTURE_H_

#include <map>
#include <string>
#include <vector>

#include "exporters/manifest.h"
#include "exporters/prove.h"
#include "ir/model.h"

namespace twinforge {

struct StructureRequest {
  const Model& source;
  const TwinManifest& manifest;
  const std::string& root;  // the twin's folder
  const std::vector<LedgerRow>&
      ledger;  // of the manifest's programs over the source's tensors, in their order
};

// Rows of the check "structure": what fails, and one row per kind of thing that holds.
std::vector<ProofRow> ProveStructure(const StructureRequest& request);

// Stored tensors that a program reads, by name, as it expects them.
std::map<std::string, WeightPtr> SourceNodesOf(const WeightPtr& program);

// Adapters are files of their own, beside the source.
bool IsOfAdapter(absl::string_view source_name);

}  // namespace twinforge

#endif  // TWINFORGE_EXPORTERS_PROVE_STRUCTURE_H_
