#include "cli/twin_report.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cli/open.h"
#include "reference/onnx/write_onnx.h"
#include "report/table.h"

namespace twinforge {
namespace {

constexpr size_t kReasonsShown = 12;  // rows of refusals on a terminal; JSON has all

}  // namespace

void AddWriteFlags(CLI::App* verb, WriteFlags& flags) {
  verb->add_option(
          "--to", flags.to,
          "hf: the source's own format; twin: the native layout; onnx: an ONNX model; auto: hf where the "
          "twin can be said in it")
      ->check(CLI::IsMember({"auto", "hf", "twin", "onnx"}));
  AddOnnxFlags(verb, flags.onnx);
  verb->add_option("--shard-size", flags.shard_size, "largest file of tensors");
  AddWorkFlags(verb, flags);
}

void AddOpsetFlag(CLI::App* verb, int& opset) {
  verb->add_option("--opset", opset,
                   absl::StrCat("onnx: the operator set, ", kOldestOnnxOpset, " to ", kNewestOnnxOpset, "; ",
                                kUsualOnnxOpset, " unless said"))
      ->check(CLI::Range(kOldestOnnxOpset, kNewestOnnxOpset));
}

void AddOnnxFlags(CLI::App* verb, OnnxFlags& flags) {
  AddOpsetFlag(verb, flags.opset);
  verb->add_option("--dtype", flags.dtype,
                   "onnx: computes in f32, bf16, f16 or f64; default: as stored, f32 where that is bf16")
      ->check(CLI::IsMember({"f64", "f32", "bf16", "f16"}));
}

void AddWorkFlags(CLI::App* verb, WriteFlags& flags) {
  verb->add_option("--memory", flags.memory, "budget for the whole process: 256MiB, 2GiB");
  verb->add_option("--threads", flags.threads, "workers; the result does not depend on it")
      ->check(CLI::Range(1, 256));
}

absl::StatusOr<ExportOptions> OptionsOf(const WriteFlags& flags) {
  ExportOptions options;
  TWIN_ASSIGN_OR_RETURN(options.memory, ParseBytes(flags.memory));
  TWIN_ASSIGN_OR_RETURN(options.shard_bytes, ParseBytes(flags.shard_size));
  options.threads = flags.threads;
  options.reference = !flags.no_reference;
  options.target = TargetFromName(flags.to).value_or(Target::kHf);
  if (options.target != Target::kOnnx && (flags.onnx.opset != 0 || !flags.onnx.dtype.empty()))
    return Error(1003, flags.onnx.opset != 0 ? "--opset" : "--dtype", "does nothing without --to onnx");
  options.opset = flags.onnx.opset;
  if (!flags.onnx.dtype.empty()) options.dtype = DTypeFromName(flags.onnx.dtype);
  return options;
}

absl::StatusOr<PlannedExport> PlanWrite(const Model& model, const WriteFlags& flags) {
  PlannedExport planned;
  TWIN_ASSIGN_OR_RETURN(planned.options, OptionsOf(flags));
  TWIN_ASSIGN_OR_RETURN(planned.plan, PlanExport(model, planned.options));
  return planned;
}

absl::StatusOr<Prepared*> Prepare(const RecipeFlags& recipe, const WriteFlags& write, Model model) {
  auto* prepared = new Prepared();
  Graph source = model.graph;
  TwinTarget target = TargetOf(recipe);
  target.published = write.to != "twin" && write.to != "onnx";
  TWIN_ASSIGN_OR_RETURN(prepared->twin, MakeTwin(recipe.recipe, target, std::move(model)));
  absl::StatusOr<PlannedExport> planned = PlanWrite(prepared->twin.model, write);
  if (!planned.ok() && write.to == "auto") {
    const Diagnostic d = DiagnosticOf(planned.status()).value_or(Diagnostic());
    if (d.code == 1601 || d.code == 1602) {
      WriteFlags native = write;
      native.to = "twin";
      TWIN_RETURN_IF_ERROR(RemakeNative(std::move(source), prepared->twin));
      planned = PlanWrite(prepared->twin.model, native);
      if (planned.ok())
        planned->note = absl::StrCat("written in the twin's own layout, since ", d.place, ": ", d.message);
    }
  }
  TWIN_ASSIGN_OR_RETURN(prepared->planned, std::move(planned));
  return prepared;
}

std::string FidelityText(absl::string_view fidelity, absl::string_view bound) {
  return absl::StrCat(
      fidelity,
      bound.empty() ? "" : absl::StrCat(", each rounded weight within ", bound, " of its magnitude"));
}

std::string HumanReport(const Twin& twin) {
  const RecipeReport& report = twin.report;
  if (report.already_native()) {
    return absl::StrCat(twin.recipe.name, ": already native, nothing to do\n");
  }
  std::string out = absl::StrCat(twin.recipe.name, ": ", Grouped(report.sites), " sites rewritten, ",
                                 Grouped(report.refused), " refused; fidelity ",
                                 FidelityText(FidelityName(report.fidelity), BoundText(report.bound)), "\n");
  Table table({"step", "rewritten", "native", "refused", "fidelity", "elements added"});
  for (const StepReport& step : report.steps) {
    table.Row({step.step, Grouped(step.sites.size()), Grouped(step.native.size()),
               Grouped(step.refused.size()),
               absl::StrCat(FidelityName(step.fidelity), step.bound > 0 ? " " : "", BoundText(step.bound)),
               Grouped(step.elements_added)});
  }
  absl::StrAppend(&out, table.Text());
  // Refusals of one step with one reason are one line: forty layers refuse alike.
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> reasons;
  for (const StepReport& step : report.steps) {
    for (const Refusal& refusal : step.refused) reasons[{step.step, refusal.reason}].push_back(refusal.path);
  }
  size_t shown = 0;
  for (const auto& [key, paths] : reasons) {
    if (++shown > kReasonsShown) {
      absl::StrAppend(&out, "  ... ", reasons.size() - kReasonsShown,
                      " more reasons; --format json lists all\n");
      break;
    }
    absl::StrAppend(&out, "  refused by ", key.first, ": ", paths.front(),
                    paths.size() > 1 ? absl::StrCat(" and ", paths.size() - 1, " more") : "", ": ",
                    key.second, "\n");
  }
  return out;
}

Json ReportJson(const Twin& twin) {
  Json json = Json::object();
  json["recipe"] = twin.recipe.name;
  json["sites"] = twin.report.sites;
  json["already_native"] = twin.report.already_native();
  json["fidelity"] = std::string(FidelityName(twin.report.fidelity));
  json["bound"] = BoundText(twin.report.bound);
  json["refused"] = Json::array();
  json["steps"] = Json::array();
  for (const StepReport& step : twin.report.steps) {
    for (const Refusal& refusal : step.refused) {
      json["refused"].push_back({{"step", step.step}, {"role", refusal.path}, {"reason", refusal.reason}});
    }
    json["steps"].push_back({{"step", step.step},
                             {"fidelity", std::string(FidelityName(step.fidelity))},
                             {"bound", BoundText(step.bound)},
                             {"sites", step.sites},
                             {"native", step.native},
                             {"refused", step.refused.size()},
                             {"elements_added", step.elements_added}});
  }
  return json;
}

void AddPlanJson(const PlannedExport& planned, Json& json) {
  json["format"] = std::string(TargetName(planned.options.target));
  json["bytes_out"] = planned.plan.bytes_out;
  json["peak_bytes"] = planned.plan.peak_bytes;
  json["memory"] = planned.options.memory;
  json["files"] = Json::array();
  for (const OutputFile& file : planned.plan.files) {
    json["files"].push_back({{"name", file.name}, {"tensors", file.tensors.size()}, {"bytes", file.bytes}});
  }
  std::map<std::string, int64_t> fates;
  for (const LedgerRow& row : planned.plan.ledger) ++fates[std::string(FateName(row.fate))];
  json["ledger"] = fates;
  json["warnings"] = planned.plan.warnings;
  if (!planned.note.empty()) json["note"] = planned.note;
}

std::string HumanPlan(const PlannedExport& planned) {
  int64_t tensors = 0;
  for (const OutputFile& file : planned.plan.files) tensors += static_cast<int64_t>(file.tensors.size());
  std::string out = absl::StrCat(
      "writes ", HumanBytes(planned.plan.bytes_out), " (", Grouped(tensors), " tensors in ",
      planned.plan.files.size(), " files) as ", TargetName(planned.options.target), ", peak memory ",
      HumanBytes(planned.plan.peak_bytes), " of ", HumanBytes(planned.options.memory), "\n");
  if (!planned.note.empty()) absl::StrAppend(&out, "note: ", planned.note, "\n");
  for (const std::string& warning : planned.plan.warnings) absl::StrAppend(&out, "warning: ", warning, "\n");
  return out;
}

}  // namespace twinforge
