// twinforge plan MODEL --recipe R: every rewrite, byte count and the peak memory, from headers alone.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cli/open.h"
#include "cli/twin_report.h"

namespace twinforge {
namespace {

absl::StatusOr<Outcome> Plan(const ModelFlags& model_flags, const RecipeFlags& recipe_flags,
                             const WriteFlags& write_flags) {
  Outcome outcome;
  TWIN_ASSIGN_OR_RETURN(Model model, OpenFlags(model_flags));
  TWIN_ASSIGN_OR_RETURN(Prepared * prepared, Prepare(recipe_flags, write_flags, std::move(model)));
  outcome.human = HumanReport(prepared->twin) + HumanPlan(prepared->planned);
  outcome.json = ReportJson(prepared->twin);
  AddPlanJson(prepared->planned, outcome.json);
  return outcome;
}

}  // namespace

void AddPlan(CLI::App& app, Invocation& invocation) {
  static ModelFlags model;
  static RecipeFlags recipe;
  static WriteFlags write;
  CLI::App* verb =
      AddVerb(app, invocation, "plan", "every rewrite, byte count and the peak memory; reads headers only",
              "  twinforge plan ./model --recipe tpu-exact-portable\n"
              "  twinforge plan --from-config config.json --recipe tpu-exact-native --chip v6e --shards 8 "
              "--format json\n");
  AddModelFlags(verb, model);
  AddRecipeFlags(verb, recipe, true);
  AddWriteFlags(verb, write);
  SetRun(verb, invocation, [] { return Plan(model, recipe, write); });
}

}  // namespace twinforge
