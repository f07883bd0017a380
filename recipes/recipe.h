// A recipe as read: checked as text, library names resolved, steps spliced.
//
// Everything that can be known without a model is checked here, before one is opened:
// keys and values (with line and column and the nearest valid key), transform
// parameters, fidelity against `require`, regular expressions.
#ifndef TWINFORGE_RECIPES_RECIPE_H_
#define TWINFORGE_RECIPES_RECIPE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transforms/transform.h"

namespace twinforge {

struct RecipeStep {
  std::string name;   // "2 pad_vocab": position and transform
  std::string place;  // "my.textproto:4:1", where the step stands
  std::string text;   // one line of textproto, for manifests
  std::shared_ptr<const TransformStep> parameters;
};

// A key with several values: a Sweep of the recipe's, or `score --vary`.
struct SweepAxis {
  std::string key;                  // "pad_ffn.multiple", "3.pad_ffn.multiple", "pad_ffn", "batch"
  std::string place;                // "my.textproto:4:1"
  std::vector<std::string> values;  // as text, at least one, no two alike
};

struct LoadedRecipe {
  std::string name;
  std::string description;
  std::string text;  // the file as read
  Fidelity require = Fidelity::kReassociated;
  std::vector<RecipeStep> steps;  // `use` spliced
  std::vector<SweepAxis> sweeps;  // where there are any, no one twin is meant: recipes/sweep_axes.h
};

// `name_or_file`: a name in the library, or a path (anything with '/' or ending in .textproto).
absl::StatusOr<LoadedRecipe> LoadRecipe(const std::string& name_or_file);
// `place` stands before line:column in diagnostics.
absl::StatusOr<LoadedRecipe> ParseRecipe(absl::string_view text, absl::string_view place);

// Checks each step's parameters and claims under `context` (merge_lora's adapters aside), of a recipe with
// sweeps for every value.
absl::Status CheckRecipe(const LoadedRecipe& recipe, const TransformContext& context);

// Paths that merge_lora steps name, to be loaded before CheckRecipe.
std::vector<std::string> AdapterPaths(const LoadedRecipe& recipe);

struct LibraryRecipe {
  std::string name;
  std::string description;
};
std::vector<LibraryRecipe> LibraryRecipes();
absl::StatusOr<std::string> LibraryRecipeText(const std::string& name);

}  // namespace twinforge

#endif  // TWINFORGE_RECIPES_RECIPE_H_
