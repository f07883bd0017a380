// A recipe's work on a graph, step by step, so that a fault can be sought between the steps.
#ifndef TWINFORGE_PROOF_STEPS_H_
#define TWINFORGE_PROOF_STEPS_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/model.h"
#include "recipes/plan.h"
#include "recipes/recipe.h"

namespace twinforge {

// graphs[0] is the source, graphs[k] what it is after names[k - 1].
struct StepTrace {
  std::vector<std::string> names;  // "2 pad_vocab"
  std::vector<Graph> graphs;
};

// Runs the steps of `recipe` but for those in `left_out` (names as in RecipeStep), one at a time. What a
// `where` expects of numbers of places is not asked, and a step that finds no place does nothing: the model
// may be a shrunk one, with fewer layers than the recipe was written for.
absl::StatusOr<StepTrace> TraceSteps(const LoadedRecipe& recipe, const RecipeOptions& options,
                                     const std::set<std::string>& left_out, Model model);

}  // namespace twinforge

#endif  // TWINFORGE_PROOF_STEPS_H_
