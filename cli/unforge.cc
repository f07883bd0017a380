// twinforge unforge TWIN --out DIR: back to the source's files and layout.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cli/open.h"
#include "cli/progress.h"
#include "cli/twin_report.h"
#include "report/table.h"

namespace twinforge {
namespace {

struct UnforgeFlags {
  std::string twin;
  std::string out;
  WriteFlags work;
  std::string progress = "auto";
};

absl::StatusOr<Outcome> RunUnforge(const UnforgeFlags& flags) {
  Outcome outcome;
  TWIN_ASSIGN_OR_RETURN(OpenedTwin twin, OpenTwinFolder(flags.twin));
  TWIN_ASSIGN_OR_RETURN(ExportOptions options, OptionsOf(flags.work));
  TWIN_ASSIGN_OR_RETURN(ExportPlan plan, PlanUnforge(twin.manifest, twin.stored, options));
  TWIN_ASSIGN_OR_RETURN(ExportResult result, Unforge(twin.stored, plan, options, flags.out,
                                                     MakeProgress(flags.progress, "unforge")));
  outcome.done = absl::StrCat("the source's files are written to ", result.folder);
  outcome.human = absl::StrCat("wrote ", HumanBytes(result.bytes_written), " to ", result.folder,
                               " in the source's own layout\n");
  for (const std::string& warning : plan.warnings)
    absl::StrAppend(&outcome.human, "warning: ", warning, "\n");
  outcome.json = {
      {"out", result.folder}, {"bytes_written", result.bytes_written}, {"warnings", plan.warnings}};
  return outcome;
}

}  // namespace

void AddUnforge(CLI::App& app, Invocation& invocation) {
  static UnforgeFlags flags;
  CLI::App* verb = AddVerb(app, invocation, "unforge", "a twin back to its source's files and layout",
                           "  twinforge unforge ./twin --out ./home\n  twinforge unforge ./tuned-twin --out "
                           "./home --memory 512MiB\n");
  verb->add_option("TWIN", flags.twin, "the twin's folder")->required();
  verb->add_option("--out", flags.out, "folder to make; must not exist")->required();
  AddWorkFlags(verb, flags.work);
  verb->add_option("--progress", flags.progress, "auto, tty, plain or none")
      ->check(CLI::IsMember({"auto", "tty", "plain", "none"}));
  SetRun(verb, invocation, [] { return RunUnforge(flags); });
}

}  // namespace twinforge
