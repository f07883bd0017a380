#include "recipes/run.h"

#include <set>
#include <string>

#include "absl/strings/match.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "cost/score.h"
#include "importers/adapter.h"
#include "transforms/transforms.pb.h"

namespace twinforge {
namespace {

constexpr int64_t kPagedHeadDim = 128;  // accepted by paged attention in jax 0.10.2 on every generation tried

// An adapter's matrices that no step merged: the report names the refusals, and the ledger need not miss
// them.
void SetAsideUnmerged(Twin& twin) {
  if (twin.options.context.adapters.empty()) return;
  std::set<std::string> used;
  for (const auto& [role, param] : twin.model.graph.params()) {
    for (std::string& source : SourcesOf(param.program)) used.insert(std::move(source));
  }
  for (SourceTensor& tensor : twin.model.sources) {
    if (absl::StartsWith(tensor.name, "adapter/") && used.count(tensor.name) == 0)
      tensor.ignored = "merge_lora refused it";
  }
}

}  // namespace

absl::StatusOr<Twin> MakeTwin(const std::string& recipe, const TwinTarget& target, Model model) {
  TWIN_ASSIGN_OR_RETURN(LoadedRecipe loaded, LoadRecipe(recipe));
  return MakeTwinBy(std::move(loaded), target, std::move(model));
}

absl::StatusOr<ChipFacts> FactsFor(const TwinTarget& target) {
  ChipFacts facts;
  facts.shards = target.shards;
  facts.kernel = target.kernel == "paged" ? kPagedHeadDim : 1;
  if (target.chip.empty()) return facts;
  TWIN_ASSIGN_OR_RETURN(ChipSummary chip, FindChip(target.chip));
  if (chip.lanes > 0) facts.lanes = chip.lanes;
  if (chip.mxu > 0) facts.mxu = chip.mxu;
  return facts;
}

absl::StatusOr<RecipeOptions> OptionsFor(const LoadedRecipe& recipe, const TwinTarget& target, Model& model) {
  RecipeOptions options;
  TWIN_ASSIGN_OR_RETURN(options.context.facts, FactsFor(target));
  for (const RecipeStep& step : recipe.steps) {
    if (!step.parameters->has_merge_lora()) continue;
    const std::string& path = step.parameters->merge_lora().adapter();
    const auto instead = target.adapters.find(path);
    const bool moved = instead != target.adapters.end();
    absl::StatusOr<Adapter> adapter = LoadAdapter(moved ? instead->second : path, model);
    if (!adapter.ok()) return moved ? adapter.status() : WithPlace(adapter.status(), step.place);
    options.context.adapters[path] = *std::move(adapter);
  }
  options.disabled = target.skip;
  return options;
}

absl::StatusOr<Twin> MakeTwinBy(LoadedRecipe recipe, const TwinTarget& target, Model model) {
  Twin twin;
  twin.recipe = std::move(recipe);
  TWIN_ASSIGN_OR_RETURN(twin.options, OptionsFor(twin.recipe, target, model));
  twin.model = std::move(model);
  RecipeOptions options = twin.options;
  if (target.published) {
    options.sayable = [&twin](const Graph& graph) {
      if (twin.model.layouts.empty()) return absl::OkStatus();  // it has no config to be said in
      return ConfigFromGraph(twin.model.layouts[0], graph, twin.model.config).status();
    };
  }
  TWIN_ASSIGN_OR_RETURN(twin.report, RunRecipe(twin.recipe, options, twin.model));
  SetAsideUnmerged(twin);
  return twin;
}

absl::Status RemakeNative(Graph source, Twin& twin) {
  twin.model.graph = std::move(source);
  TWIN_ASSIGN_OR_RETURN(twin.report, RunRecipe(twin.recipe, twin.options, twin.model));
  SetAsideUnmerged(twin);
  return absl::OkStatus();
}

}  // namespace twinforge
