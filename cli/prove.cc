// twinforge prove SOURCE TWIN: the recipe run again, every byte derived anew, the function computed, rounding
// measured.
#include "proof/prove.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "cli/attainable.h"
#include "cli/new_folder.h"
#include "cli/open.h"
#include "cli/progress.h"
#include "cli/twin_report.h"
#include "exporters/prove_files.h"
#include "importers/importer.h"
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
  std::string smallest_case;
  bool attainable = false;
};

void SayRows(const ProofReport& report, Outcome& outcome) {
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
  absl::StrAppend(&outcome.human, table.Text(), shown);
  for (const auto& [check, count] : checked)
    outcome.json["checks"][check] = {{"things", count}, {"failed", failed[check]}};
  outcome.json["failures"] = failures;
}

std::string Short(double number) { return absl::StrFormat("%.2g", number); }

std::string Word(Verdict verdict) { return std::string(VerdictName(verdict)); }

void SayAlgebra(const FunctionProof& algebra, Outcome& outcome) {
  absl::StrAppend(&outcome.human, "algebra ", VerdictName(algebra.verdict));
  if (!algebra.on.empty()) absl::StrAppend(&outcome.human, " on ", algebra.on);
  if (algebra.values > 0) {
    absl::StrAppend(&outcome.human, ": ", Grouped(algebra.values), " outputs within ", Short(algebra.largest),
                    " of the largest (", Short(algebra.tolerance), " allowed)");
  }
  for (const std::string& step : algebra.left_out)
    absl::StrAppend(&outcome.human, "\n  but for step ", step, ", which changes the function on purpose");
  if (!algebra.reason.empty()) absl::StrAppend(&outcome.human, "\n  ", algebra.reason);
  absl::StrAppend(&outcome.human, "\n");
  outcome.json["algebra"] = {{"verdict", Word(algebra.verdict)}, {"on", algebra.on},
                             {"outputs", algebra.values},        {"largest_difference", algebra.largest},
                             {"tolerance", algebra.tolerance},   {"left_out", algebra.left_out},
                             {"reason", algebra.reason}};
}

void SayClaims(const RoundingProof& claims, Outcome& outcome) {
  double largest = 0;
  Json rounded = Json::array();
  for (const RoundedTensor& tensor : claims.rounded) {
    largest = std::max(largest, tensor.largest);
    rounded.push_back({{"tensor", tensor.name},
                       {"largest", tensor.largest},
                       {"mean", tensor.mean},
                       {"claimed", tensor.claimed},
                       {"within", tensor.verdict == Verdict::kProven}});
  }
  const ThreeWay& ways = claims.three_way;
  absl::StrAppend(&outcome.human, "claims ", VerdictName(claims.verdict), ": ",
                  Grouped(claims.rounded.size()), " tensors rounded, by ", Short(largest),
                  " of a magnitude at most");
  if (ways.verdict != Verdict::kIncomplete) {
    absl::StrAppend(&outcome.human, "; in ", ways.dtype, " off by ", Short(ways.twin_error),
                    ", the source itself by ", Short(ways.source_error), " (", ways.multiple,
                    " times that allowed)");
  }
  if (!claims.reason.empty()) absl::StrAppend(&outcome.human, "\n  ", claims.reason);
  absl::StrAppend(&outcome.human, "\n");
  outcome.json["claims"] = {{"verdict", Word(claims.verdict)},
                            {"bound", claims.bound},
                            {"rounded", rounded},
                            {"reason", claims.reason}};
  outcome.json["claims"]["three_way"] = {{"verdict", Word(ways.verdict)},     {"dtype", ways.dtype},
                                         {"source_error", ways.source_error}, {"twin_error", ways.twin_error},
                                         {"multiple", ways.multiple},         {"reason", ways.reason}};
}

void SayFault(const TwinProof& proof, Outcome& outcome) {
  outcome.json["fault"] = nullptr;
  if (!proof.fault) return;
  const FaultPlace& fault = *proof.fault;
  const auto or_none = [](const std::string& word) { return word.empty() ? std::string("-") : word; };
  absl::StrAppend(&outcome.human, "fault: step ", or_none(fault.step), ", layer ", or_none(fault.layer),
                  ", role ", or_none(fault.role), ": ", fault.what, "\n");
  outcome.json["fault"] = {
      {"step", fault.step}, {"layer", fault.layer}, {"role", fault.role}, {"what", fault.what}};
}

Outcome Say(const TwinProof& proof, const TwinManifest& manifest) {
  Outcome outcome;
  const ProofReport& rows = proof.rows;
  outcome.human = absl::StrCat(VerdictName(proof.verdict), ": ", Grouped(rows.tensors_forward),
                               " tensors derived anew from the source, ", Grouped(rows.tensors_inverse),
                               " source tensors turned back bit for bit, ", HumanBytes(rows.bytes_checked),
                               " compared; fidelity ",
                               FidelityText(manifest.provenance.fidelity, manifest.provenance.bound), "\n");
  outcome.json["verdict"] = Word(proof.verdict);
  outcome.json["fidelity"] = manifest.provenance.fidelity;
  outcome.json["bound"] = manifest.provenance.bound;
  outcome.json["structure"] = {{"verdict", Word(proof.structure)}};
  outcome.json["bytes"] = {{"verdict", Word(proof.bytes)},
                           {"compared", rows.bytes_checked},
                           {"tensors_forward", rows.tensors_forward},
                           {"tensors_inverse", rows.tensors_inverse}};
  SayAlgebra(proof.algebra, outcome);
  SayClaims(proof.claims, outcome);
  SayFault(proof, outcome);
  SayRows(rows, outcome);
  outcome.exit = proof.verdict == Verdict::kProven ? ExitCode::kDone : ExitCode::kFindings;
  return outcome;
}

absl::Status CheckCaseIsNew(const std::string& path) {
  struct stat info = {};
  if (path.empty() || stat(path.c_str(), &info) != 0) return absl::OkStatus();
  return Error(1608, path, "exists", "name a file that does not");
}

bool HasCase(const std::string& path, const TwinProof& proof) {
  return !path.empty() && !proof.algebra.smallest_case.empty();
}

absl::Status WriteCase(const std::string& path, const TwinProof& proof) {
  if (!HasCase(path, proof)) return absl::OkStatus();
  return WriteNewFile(path, proof.algebra.smallest_case);
}

// A twin that is whole by its manifest, and does not open for what somebody laid beside it.
std::optional<Outcome> RefutedByStrangers(const std::string& folder, const absl::Status& why) {
  const absl::StatusOr<TwinManifest> manifest = OpenManifest(folder);
  if (!manifest.ok() || ExitCodeOf(why) == ExitCode::kTransient) return std::nullopt;
  TwinProof proof;
  for (ProofRow& row : Strangers(*manifest, folder)) AddProofRow(std::move(row), proof.rows);
  if (proof.rows.verdict != Verdict::kRefuted) return std::nullopt;
  proof.verdict = proof.bytes = Verdict::kRefuted;
  proof.structure = Verdict::kIncomplete;
  const Diagnostic d = DiagnosticOf(why).value_or(Diagnostic());
  proof.algebra.reason = absl::StrCat("the twin does not open: ", d.place, ": ", d.message);
  proof.claims.reason = proof.algebra.reason;
  const ProofRow& first = proof.rows.rows[0];
  proof.fault = FaultPlace{.what = absl::StrCat(first.check, ": ", first.subject, ": ", first.detail)};
  return Say(proof, *manifest);
}

absl::StatusOr<Outcome> RunProve(const ProveFlags& flags) {
  TWIN_RETURN_IF_ERROR(CheckCaseIsNew(flags.smallest_case));
  TWIN_ASSIGN_OR_RETURN(Model source, OpenCheckpoint(flags.source, flags.config));
  absl::StatusOr<OpenedTwin> opened = OpenTwinFolder(flags.twin);
  if (!opened.ok()) {
    std::optional<Outcome> refuted = RefutedByStrangers(flags.twin, opened.status());
    if (refuted) return *std::move(refuted);
    return opened.status();
  }
  const OpenedTwin& twin = *opened;
  TWIN_ASSIGN_OR_RETURN(ExportOptions options, OptionsOf(flags.work));
  const auto progress = MakeProgress(flags.progress, "prove");
  TWIN_ASSIGN_OR_RETURN(TwinProof proof, ProveTwin({std::move(source), twin.manifest, twin.stored,
                                                    flags.adapters, options, progress}));
  TWIN_RETURN_IF_ERROR(WriteCase(flags.smallest_case, proof));
  Outcome outcome = Say(proof, twin.manifest);
  if (flags.attainable) TWIN_RETURN_IF_ERROR(SayAttainable(flags.twin, outcome));
  outcome.done = absl::StrCat("the twin is ", VerdictName(proof.verdict));
  if (HasCase(flags.smallest_case, proof))
    absl::StrAppend(&outcome.done, ", and the smallest case is written to ", flags.smallest_case);
  return outcome;
}

}  // namespace

void AddProve(CLI::App& app, Invocation& invocation) {
  static ProveFlags flags;
  CLI::App* verb =
      AddVerb(app, invocation, "prove", "whether a twin is what it claims to be, from the very source",
              "  twinforge prove ./model ./twin\n  twinforge prove ./model ./twin --format json\n");
  verb->add_option("SOURCE", flags.source, "the checkpoint that the twin was made from")->required();
  verb->add_option("TWIN", flags.twin, "the twin's folder")->required();
  verb->add_option("--config", flags.config,
                   "the source's config.json, where it does not lie beside the tensors");
  verb->add_option("--adapter", flags.adapters,
                   "folder of the adapter that the twin's recipe merged; once per merge_lora step, in order");
  verb->add_option("--case", flags.smallest_case,
                   "where the algebra refutes: file to make, with the smallest failing case as text graphs");
  verb->add_flag(
      "--attainable", flags.attainable,
      "a finding too where no compile record beside the twin shows that the TPU compiler takes it");
  AddWorkFlags(verb, flags.work);
  verb->add_option("--progress", flags.progress, "auto, tty, plain or none")
      ->check(CLI::IsMember({"auto", "tty", "plain", "none"}));
  SetRun(verb, invocation, [] { return RunProve(flags); });
}

}  // namespace twinforge
