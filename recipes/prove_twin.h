// The whole proof of a twin: its bytes (exporters/prove.h), and that its recipe is what made it.
//
//   recipe   the source graph that the manifest records is the source's own; the recorded recipe, run on it
//            again for the recorded target, gives the recorded graph, steps, fidelity and bound
//
// A manifest is sealed by a hash that anybody can make anew, so nothing in it is believed for being there.
#ifndef TWINFORGE_RECIPES_PROVE_TWIN_H_
#define TWINFORGE_RECIPES_PROVE_TWIN_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "exporters/prove.h"

namespace twinforge {

// `adapters` are folders for the recipe's merge_lora steps, in their order: a manifest's own paths are not
// followed. Where they are not given, what depends on them is incomplete.
absl::StatusOr<ProofReport> ProveTwin(Model source, const TwinManifest& manifest, const StoredTwin& stored,
                                      const std::vector<std::string>& adapters, const ExportOptions& options,
                                      const std::function<void(const Progress&)>& progress);

}  // namespace twinforge

#endif  // TWINFORGE_RECIPES_PROVE_TWIN_H_
