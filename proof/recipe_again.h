// The recorded recipe, run again: is it what made this twin?
//
//   recipe   the source graph that the manifest records is the source's own; the recorded recipe, run on it
//            again for the recorded target, gives the recorded graph, steps, fidelity and bound
//
// A manifest is sealed by a hash that anybody can make anew, so nothing in it is believed for being there.
#ifndef TWINFORGE_PROOF_RECIPE_AGAIN_H_
#define TWINFORGE_PROOF_RECIPE_AGAIN_H_

#include <optional>
#include <string>
#include <vector>

#include "exporters/manifest.h"
#include "exporters/prove.h"
#include "recipes/run.h"

namespace twinforge {

struct RecipeAgain {
  std::vector<ProofRow> rows;
  std::optional<Twin> twin;  // what it makes of the source, where it runs
};

// `adapters` are folders for the recipe's merge_lora steps, in their order: a manifest's own paths are not
// followed. Where they are not given, what depends on them is incomplete.
RecipeAgain RunRecipeAgain(const TwinManifest& manifest, const std::vector<std::string>& adapters,
                           const Model& source);

}  // namespace twinforge

#endif  // TWINFORGE_PROOF_RECIPE_AGAIN_H_
