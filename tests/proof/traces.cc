#include "tests/proof/traces.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "importers/importer.h"
#include "proof/values.h"
#include "tests/importers/small_checkpoints.h"

namespace twinforge {

Model SmallFamilyModel(const std::string& name) {
  absl::StatusOr<Model> model = ModelFromConfigText(SmallConfigOf(name), name);
  TWIN_CHECK(model.ok(), absl::StrCat(name, ": ", model.status().message()));
  model->reader = std::make_shared<MadeTensors>(1);
  return *std::move(model);
}

LoadedRecipe RecipeOf(const std::string& steps) {
  absl::StatusOr<LoadedRecipe> recipe =
      ParseRecipe(absl::StrCat("name: \"test\" require: RETRAIN ", steps), "test");
  TWIN_CHECK(recipe.ok(), absl::StrCat(steps, ": ", recipe.status().message()));
  return *std::move(recipe);
}

StepTrace TraceWith(const LoadedRecipe& recipe, const RecipeOptions& options, Model model,
                    const std::function<void(size_t, Graph&)>& strike) {
  StepTrace trace;
  trace.graphs.push_back(model.graph);
  for (size_t k = 0; k < recipe.steps.size(); ++k) {
    LoadedRecipe alone = recipe;
    alone.steps = {recipe.steps[k]};
    absl::StatusOr<StepTrace> step = TraceSteps(alone, options, {}, model);
    TWIN_CHECK(step.ok(), absl::StrCat(recipe.steps[k].name, ": ", step.status().message()));
    model.graph = std::move(step->graphs.back());
    if (strike) strike(k + 1, model.graph);
    trace.names.push_back(recipe.steps[k].name);
    trace.graphs.push_back(model.graph);
  }
  return trace;
}

}  // namespace twinforge
