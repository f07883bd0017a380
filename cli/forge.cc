// twinforge forge MODEL --recipe R --out DIR: the twin, with its manifest.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cli/open.h"
#include "cli/progress.h"
#include "cli/twin_report.h"
#include "ir/text.h"
#include "report/table.h"

namespace twinforge {
namespace {

struct ForgeFlags {
  ModelFlags model;
  RecipeFlags recipe;
  WriteFlags write;
  std::string out;
  std::string progress = "auto";
  bool dry_run = false;
};

Provenance ProvenanceOf(const Twin& twin, const RecipeFlags& flags, std::string source_graph) {
  Provenance provenance;
  provenance.recipe_name = twin.recipe.name;
  provenance.recipe_text = twin.recipe.text;
  provenance.fidelity = std::string(FidelityName(twin.report.fidelity));
  provenance.bound = BoundText(twin.report.bound);
  provenance.chip = TargetOf(flags).chip;  // by its id
  provenance.kernel = flags.kernel;
  provenance.skipped = flags.skip;
  provenance.shards = flags.shards;
  provenance.source_graph = std::move(source_graph);
  provenance.steps = StepLines(twin.report);
  return provenance;
}

absl::StatusOr<Outcome> Forge(const ForgeFlags& flags) {
  Outcome outcome;
  TWIN_ASSIGN_OR_RETURN(Model model, OpenFlags(flags.model));
  std::string source_graph = Text(model.graph);
  TWIN_ASSIGN_OR_RETURN(Prepared * prepared, Prepare(flags.recipe, flags.write, std::move(model)));
  const Twin& twin = prepared->twin;
  const PlannedExport& planned = prepared->planned;
  outcome.json = ReportJson(twin);
  AddPlanJson(planned, outcome.json);
  outcome.human = HumanReport(twin) + HumanPlan(planned);
  if (flags.dry_run) return outcome;
  const Provenance provenance = ProvenanceOf(twin, flags.recipe, std::move(source_graph));
  TWIN_ASSIGN_OR_RETURN(ExportResult result, Export(twin.model, planned.plan, provenance, planned.options,
                                                    flags.out, MakeProgress(flags.progress, "forge")));
  outcome.done = absl::StrCat("the twin is written to ", result.folder);
  absl::StrAppend(&outcome.human, "wrote ", HumanBytes(result.bytes_written), " to ", result.folder, "\n");
  if (result.bytes_reused > 0) {
    absl::StrAppend(&outcome.human, "resumed: ", HumanBytes(result.bytes_reused),
                    " were complete from an interrupted run\n");
  }
  outcome.json["out"] = result.folder;
  outcome.json["bytes_written"] = result.bytes_written;
  outcome.json["bytes_reused"] = result.bytes_reused;
  return outcome;
}

}  // namespace

void AddForge(CLI::App& app, Invocation& invocation) {
  static ForgeFlags flags;
  CLI::App* verb = AddVerb(
      app, invocation, "forge", "write the twin of a model, with its manifest",
      "  twinforge forge ./model --recipe tpu-exact-portable --out ./twin\n"
      "  twinforge forge ./model --recipe tpu-exact-native --to twin --chip v6e --shards 8 --out ./twin\n");
  AddCheckpointFlags(verb, flags.model);
  AddRecipeFlags(verb, flags.recipe, true);
  AddWriteFlags(verb, flags.write);
  verb->add_option("--out", flags.out, "folder to make; must not exist")->required();
  verb->add_option("--progress", flags.progress, "auto, tty, plain or none")
      ->check(CLI::IsMember({"auto", "tty", "plain", "none"}));
  verb->add_flag("--no-reference", flags.write.no_reference,
                 "leave out reference/, the code that runs the twin");
  verb->add_flag("--dry-run", flags.dry_run, "plan only, write nothing");
  SetRun(verb, invocation, [] { return Forge(flags); });
}

}  // namespace twinforge
