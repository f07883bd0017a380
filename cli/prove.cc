// twinforge prove SOURCE TWIN: the recipe run again, every byte derived anew, the inverse streamed, the
// ledger checked.
#include <map>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cli/open.h"
#include "cli/progress.h"
#include "cli/twin_report.h"
#include "importers/importer.h"
#include "recipes/prove_twin.h"
#include "report/table.h"

namespace twinforge {
namespace {

constexpr size_t kFailuresShown = 20;

struct ProveFlags {
  std::string source;
  std::string config;
  std::string twin;
  std::vector<std::string> adapters;
  WriteFlags work;
  std::string progress = "auto";
};

Outcome Say(const ProofReport& report, const TwinManifest& manifest) {
  Outcome outcome;
  std::map<std::string, int64_t> checked, failed;
  Json failures = Json::array();
  std::string shown;
  for (const ProofRow& row : report.rows) {
    ++checked[row.check];
    if (row.verdict == Verdict::kProven) continue;
    ++failed[row.check];
    failures.push_back({{"check", row.check},
                        {"subject", row.subject},
                        {"verdict", std::string(VerdictName(row.verdict))},
                        {"detail", row.detail}});
    if (failures.size() <= kFailuresShown)
      absl::StrAppend(&shown, "  ", VerdictName(row.verdict), " ", row.check, ": ", row.subject, ": ",
                      row.detail, "\n");
  }
  Table table({"check", "things", "failed"});
  for (const auto& [check, count] : checked) table.Row({check, Grouped(count), Grouped(failed[check])});
  outcome.human = absl::StrCat(
      VerdictName(report.verdict), ": ", Grouped(report.tensors_forward),
      " tensors derived anew from the source, ", Grouped(report.tensors_inverse),
      " source tensors turned back bit for bit, ", HumanBytes(report.bytes_checked), " compared; fidelity ",
      FidelityText(manifest.provenance.fidelity, manifest.provenance.bound), "\n", table.Text(), shown);
  outcome.json["verdict"] = std::string(VerdictName(report.verdict));
  outcome.json["fidelity"] = manifest.provenance.fidelity;
  outcome.json["bound"] = manifest.provenance.bound;
  outcome.json["bytes"] = {{"compared", report.bytes_checked},
                           {"tensors_forward", report.tensors_forward},
                           {"tensors_inverse", report.tensors_inverse}};
  for (const auto& [check, count] : checked)
    outcome.json["checks"][check] = {{"things", count}, {"failed", failed[check]}};
  outcome.json["failures"] = failures;
  outcome.exit = report.verdict == Verdict::kProven ? ExitCode::kDone : ExitCode::kFindings;
  return outcome;
}

absl::StatusOr<Outcome> RunProve(const ProveFlags& flags) {
  TWIN_ASSIGN_OR_RETURN(Model source, OpenModel(flags.source, flags.config));
  TWIN_ASSIGN_OR_RETURN(OpenedTwin twin, OpenTwinFolder(flags.twin));
  TWIN_ASSIGN_OR_RETURN(ExportOptions options, OptionsOf(flags.work));
  TWIN_ASSIGN_OR_RETURN(ProofReport report,
                        ProveTwin(std::move(source), twin.manifest, twin.stored, flags.adapters, options,
                                  MakeProgress(flags.progress, "prove")));
  return Say(report, twin.manifest);
}

}  // namespace

void AddProve(CLI::App& app, Invocation& invocation) {
  static ProveFlags flags;
  CLI::App* verb = AddVerb(
      app, invocation, "prove", "whether a twin's bytes are what its manifest says, from the very source",
      "  twinforge prove ./model ./twin\n  twinforge prove ./model ./twin --format json\n");
  verb->add_option("SOURCE", flags.source, "the checkpoint that the twin was made from")->required();
  verb->add_option("TWIN", flags.twin, "the twin's folder")->required();
  verb->add_option("--config", flags.config,
                   "the source's config.json, where it does not lie beside the tensors");
  verb->add_option("--adapter", flags.adapters,
                   "folder of the adapter that the twin's recipe merged; once per merge_lora step, in order");
  AddWorkFlags(verb, flags.work);
  verb->add_option("--progress", flags.progress, "auto, tty, plain or none")
      ->check(CLI::IsMember({"auto", "tty", "plain", "none"}));
  SetRun(verb, invocation, [] { return RunProve(flags); });
}

}  // namespace twinforge
