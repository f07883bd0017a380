#include "proof/steps.h"

#include <memory>
#include <utility>

#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "transforms/transforms.pb.h"

namespace twinforge {
namespace {

constexpr int kNothingSelected = 1105;

// The step alone, whatever number of places it finds.
LoadedRecipe Alone(const LoadedRecipe& recipe, const RecipeStep& step) {
  LoadedRecipe alone = recipe;
  auto parameters = std::make_shared<TransformStep>(*step.parameters);
  if (parameters->where().expect() != Where::NONE) parameters->mutable_where()->set_expect(Where::SOME);
  alone.steps = {step};
  alone.steps[0].parameters = std::move(parameters);
  return alone;
}

bool FoundNoPlace(const absl::Status& status) {
  const auto diagnostic = DiagnosticOf(status);
  return diagnostic.has_value() && diagnostic->code == kNothingSelected;
}

}  // namespace

absl::StatusOr<StepTrace> TraceSteps(const LoadedRecipe& recipe, const RecipeOptions& options,
                                     const std::set<std::string>& left_out, Model model) {
  StepTrace trace;
  trace.graphs.push_back(model.graph);
  RecipeOptions one = options;
  one.disabled.clear();
  one.sayable = nullptr;
  for (const RecipeStep& step : recipe.steps) {
    if (left_out.count(step.name) > 0) continue;
    const absl::Status run = RunRecipe(Alone(recipe, step), one, model).status();
    if (!run.ok() && !FoundNoPlace(run)) return run;
    trace.names.push_back(step.name);
    trace.graphs.push_back(model.graph);
  }
  return trace;
}

}  // namespace twinforge
