#include "recipes/run.h"

#include "base/status_macros.h"
#include "cost/score.h"
#include "importers/adapter.h"

namespace twinforge {
namespace {

constexpr int64_t kPagedHeadDim = 128;  // accepted by paged attention in jax 0.10.2 on every generation tried

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

}  // namespace

absl::StatusOr<Twin> MakeTwin(const std::string& recipe, const TwinTarget& target, Model model) {
  Twin twin;
  RecipeOptions options;
  TWIN_ASSIGN_OR_RETURN(twin.recipe, LoadRecipe(recipe));
  TWIN_ASSIGN_OR_RETURN(options.context.facts, FactsFor(target));
  for (const std::string& path : AdapterPaths(twin.recipe)) {
    TWIN_ASSIGN_OR_RETURN(options.context.adapters[path], LoadAdapter(path, model));
  }
  options.disabled = target.skip;
  twin.model = std::move(model);
  TWIN_ASSIGN_OR_RETURN(twin.report, RunRecipe(twin.recipe, options, twin.model));
  return twin;
}

}  // namespace twinforge
