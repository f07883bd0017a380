// Applies a recipe to a graph, step by step, and reports every place: rewritten, refused
// with its reason, or already native. Reads no tensor byte unless a transform wants one.
#ifndef TWINFORGE_RECIPES_PLAN_H_
#define TWINFORGE_RECIPES_PLAN_H_

#include <functional>
#include <map>
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

// TF1111 where a step that is switched off does not exist: misspelt, it would switch nothing off and say
// nothing.
absl::Status CheckSkipped(const LoadedRecipe& recipe, const RecipeOptions& options);

// A recipe's run, one step after another. It is a value: recipes that begin alike share their beginning.
class RecipeRun {
 public:
  // `model` and `options` must live as long as the run and its copies.
  RecipeRun(const Model& model, const RecipeOptions& options, Fidelity require);

  // Fails as RunRecipe() does; the run is then spent. A step that the options switch off does nothing.
  absl::Status Add(const RecipeStep& step);

  const Graph& graph() const { return graph_; }
  const RecipeReport& report() const { return report_; }

 private:
  const Model* model_;
  const RecipeOptions* options_;
  Fidelity require_;
  Graph graph_;
  RecipeReport report_;
  std::map<std::string, StepReport> earlier_;  // by transform, the last that rewrote something
};

// Rewrites model.graph. Fails whole (the model is then unchanged) where a step's `where`
// selects nothing that the transform knows, an expectation is not met, a step is shadowed
// by an earlier one, or a step claims less than the recipe requires. A place where the storage's dtype makes
// a step claim less is refused instead. TF1114 for a recipe with sweeps.
absl::StatusOr<RecipeReport> RunRecipe(const LoadedRecipe& recipe, const RecipeOptions& options,
                                       Model& model);

}  // namespace twinforge

#endif  // TWINFORGE_RECIPES_PLAN_H_
