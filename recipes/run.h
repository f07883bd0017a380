// From what a user names (a recipe, a chip, a number of shards, a kernel) to a rewritten model.
#ifndef TWINFORGE_RECIPES_RUN_H_
#define TWINFORGE_RECIPES_RUN_H_

#include <map>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "ir/model.h"
#include "recipes/plan.h"

namespace twinforge {

// What a twin is made for. A recipe's chip facts are filled from it.
struct TwinTarget {
  std::string chip;    // id or alias; "" where none is named: tile facts of every TPU (128)
  int64_t shards = 1;  // tensor-parallel degree
  std::string kernel;  // "" or "paged": the paged attention kernels take head_dim in multiples of 128
  std::set<std::string> skip;
  // Folders to take in place of the adapters' paths that the recipe names.
  std::map<std::string, std::string> adapters;
  bool published =
      false;  // the twin must be sayable in its family's config.json: steps that are not are refused
};

struct Twin {
  LoadedRecipe recipe;
  RecipeOptions options;
  RecipeReport report;
  Model model;  // rewritten
};

// TF1701 for an unknown chip.
absl::StatusOr<ChipFacts> FactsFor(const TwinTarget& target);

// What a run of `recipe` on `model` needs beside them: the target's facts, what is switched off, and the
// adapters that it names, whose tensors become sources of the model.
absl::StatusOr<RecipeOptions> OptionsFor(const LoadedRecipe& recipe, const TwinTarget& target, Model& model);

// Loads the recipe (and adapters that it names), checks it whole, applies it to `model`.
absl::StatusOr<Twin> MakeTwin(const std::string& recipe, const TwinTarget& target, Model model);
absl::StatusOr<Twin> MakeTwinBy(LoadedRecipe recipe, const TwinTarget& target, Model model);

// The same recipe on `source`, the graph as imported, with nothing refused for the published config's sake.
absl::Status RemakeNative(Graph source, Twin& twin);

}  // namespace twinforge

#endif  // TWINFORGE_RECIPES_RUN_H_
