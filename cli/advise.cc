// twinforge advise MODEL --chip C: every library recipe, as bounds, estimates and the compiler see its twin.
#include "recipes/advise.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cli/advise_report.h"
#include "cli/score_request.h"
#include "cli/verb.h"

namespace twinforge {
namespace {

struct AdviseFlags {
  ModelFlags model;
  ScoreFlags step;
  std::string kernel;
  std::string against;
  std::string chip_file;
  std::vector<std::string> recipes;
};

absl::StatusOr<Outcome> RunAdvise(AdviseFlags flags) {
  TWIN_RETURN_IF_ERROR(TakeUpChip("advise", flags.chip_file, flags.step.chip));
  TWIN_ASSIGN_OR_RETURN(const Model model, OpenFlags(flags.model));
  TWIN_ASSIGN_OR_RETURN(const ScoreRequest request, RequestOf(flags.step, model.config));
  TWIN_ASSIGN_OR_RETURN(const AdviceReport report, Advise(model, {.chip = request.chip,
                                                                  .against = flags.against,
                                                                  .workload = request.workload,
                                                                  .stack = request.stack,
                                                                  .format = request.format,
                                                                  .kernel = flags.kernel,
                                                                  .recipes = flags.recipes}));
  const Workload& w = request.workload;
  const std::string mesh = MeshText(w.mesh());
  Outcome outcome{.json = AdviceJson(report)};
  outcome.human = absl::StrCat(request.chip, " (", mesh, "), ", flags.step.phase, ", batch ", w.batch,
                               ", context ", w.context, "\n", AdviceText(report));
  outcome.json["chip"] = request.chip;
  outcome.json["workload"] = {{"phase", flags.step.phase},
                              {"mesh", mesh},
                              {"batch", w.batch},
                              {"context", w.context},
                              {"dtype", request.format}};
  return outcome;
}

void AddAdviseFlags(CLI::App* verb, AdviseFlags& flags) {
  constexpr int64_t kMost = int64_t{1} << 31;
  ScoreFlags& step = flags.step;
  verb->add_option("--chip", step.chip, "the chip: `twinforge chip list` names those that are known");
  verb->add_option("--chip-file", flags.chip_file,
                   "a chip file of yours: its chip, where --chip names no other");
  verb->add_option("--chips", step.chips, "devices; without --mesh all of them are tensor-parallel")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  verb->add_option("--mesh", step.mesh, "axes: tp=8, tp=1,dp=8,ep=8");
  verb->add_option("--phase", step.phase, "prefill or decode")->check(CLI::IsMember({"prefill", "decode"}));
  verb->add_option("--batch", step.batch, "sequences")->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  verb->add_option("--context", step.context, "decode: cached tokens; prefill: new tokens of each sequence")
      ->check(CLI::Range(int64_t{1}, kMost));
  verb->add_option("--dtype", step.dtype, "format of the layers' kernels, as for score");
  verb->add_option("--kv-dtype", step.kv_dtype, "type of the cache; the model's otherwise");
  verb->add_option("--stack", step.stack, "serving engine whose measured constants hold, as for score");
  verb->add_option("--kernel", flags.kernel, "attention kernel that will serve it: paged")
      ->check(CLI::IsMember({"paged"}));
  verb->add_option("--against", flags.against,
                   "another chip: what each twin gains here beyond what it gains there");
  verb->add_option("--recipe", flags.recipes, "a recipe's file, beside the library's; may be given again");
}

}  // namespace

void AddAdvise(CLI::App& app, Invocation& invocation) {
  static AdviseFlags flags;
  CLI::App* verb = AddVerb(
      app, invocation, "advise",
      "which recipe to use: every library recipe's twin as bounds, estimates and the TPU compiler see it",
      "  twinforge advise --from-config config.json --chip v6e --batch 8 --context 2048\n"
      "  twinforge advise --from-config config.json --chip v6e --chips 8 --against h100_sxm --format json\n");
  AddModelFlags(verb, flags.model);
  AddAdviseFlags(verb, flags);
  SetRun(verb, invocation, [] { return RunAdvise(flags); });
}

}  // namespace twinforge
