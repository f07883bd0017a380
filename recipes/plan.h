// Applies a recipe to a graph, step by step, and reports every place: rewritten, refused
// with its reason, or already native. Reads no tensor byte unless a transform wants one.
#ifndef TWINFORGE_RECIPES_PLAN_H_
#define TWINFORGE_RECIPES_PLAN_H_

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/model.h"
#include "recipes/recipe.h"
#include "transforms/transform.h"

namespace twinforge {

struct RecipeReport {
  std::vector<StepReport> steps;
  Fidelity fidelity = Fidelity::kMoved;  // the lowest of steps that rewrote something
  double bound = 0;                      // of all steps together, each rounding upon the one before
  int64_t sites = 0;                     // rewritten, over all steps
  int64_t refused = 0;
  bool already_native() const { return sites == 0 && refused == 0; }
};

// One line per step, for a twin's manifest: "1 pad_heads: 2 rewritten, 0 refused, 0 native".
std::vector<std::string> StepLines(const RecipeReport& report);

struct RecipeOptions {
  TransformContext context;
  std::set<std::string> disabled;  // transform names or step positions switched off (--skip-step)
  // Whether the target can still say a graph (null: everything can be said). A step that loses this is
  // undone, and its places are refused with the status's message.
  std::function<absl::Status(const Graph&)> sayable;
};

// Rewrites model.graph. Fails whole (the model is then unchanged) where a step's `where`
// selects nothing that the transform knows, an expectation is not met, a step is shadowed
// by an earlier one, or a step claims less than the recipe requires. A place where the storage's dtype makes
// a step claim less is refused instead.
absl::StatusOr<RecipeReport> RunRecipe(const LoadedRecipe& recipe, const RecipeOptions& options,
                                       Model& model);

}  // namespace twinforge

#endif  // TWINFORGE_RECIPES_PLAN_H_
