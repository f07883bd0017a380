#include "cli/attainable.h"

#include <sys/stat.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "cli/compile_programs.h"
#include "cli/open.h"
#include "cli/score_report.h"
#include "compiler/record_check.h"
#include "compiler/record_file.h"
#include "cost/certificate_graph.h"
#include "cost/chip_file.h"
#include "report/table.h"

namespace twinforge {
namespace {

constexpr int64_t kLargestRecord = 64 << 20;

// A record that was read and can be true.
absl::StatusOr<CompileRecord> SoundRecord(const std::string& path) {
  TWIN_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kLargestRecord));
  TWIN_ASSIGN_OR_RETURN(CompileRecord record, ParseCompileRecord(text, path));
  TWIN_RETURN_IF_ERROR(CheckCompileRecord(record, path));
  return record;
}

bool IsThere(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0;
}

absl::StatusOr<std::optional<NotAttainable>> WhyNot(const std::string& folder, const std::string& path) {
  if (!IsThere(path)) {
    return NotAttainable{.reason = absl::StrCat("no compile record lies beside the twin: `twinforge compile ",
                                                folder, " --topology v6e:2x2` makes one")};
  }
  TWIN_ASSIGN_OR_RETURN(const CompileRecord record, SoundRecord(path));
  TWIN_ASSIGN_OR_RETURN(const OpenedModel twin, OpenModelOrTwin(ModelFlags{.path = folder}));
  return WhyNotAttainable(record, twin.model.graph);
}

// Hertz; 0: nobody published it.
absl::StatusOr<double> ClockOf(const std::string& chip) {
  TWIN_ASSIGN_OR_RETURN(const Chip* const file, FindIn(ShippedChips(), chip));
  return file->has_clock() ? InBaseUnits(file->clock()) : 0;
}

absl::Status OfAnother(const std::string& path, absl::string_view what) {
  return Error(2109, path, absl::StrCat("is of another ", what),
               "compile it anew: `twinforge compile --out FILE`");
}

absl::Status CheckRecordFits(const CompileRecord& record, const std::string& path, const Graph& graph,
                             const std::string& chip, const Workload& workload) {
  TWIN_ASSIGN_OR_RETURN(const Chip* const asked, FindIn(ShippedChips(), chip));
  if (asked->id() != record.chip()) return OfAnother(path, absl::StrCat("chip: ", record.chip()));
  const std::string phase = workload.phase == Phase::kDecode ? "decode" : "prefill";
  if (record.phase() != phase || record.batch() != workload.batch || record.context() != workload.context) {
    return OfAnother(path,
                     absl::StrCat("step: ", record.phase(), " of ", record.batch(), " x ", record.context()));
  }
  if (record.shards() != workload.shards || workload.devices() != workload.shards || workload.pp != 1 ||
      workload.ep != 1)
    return OfAnother(path, absl::StrCat("mesh: tp=", record.shards()));
  const Precision& types = workload.precision;
  if (types.weights || types.activations || types.cache) return OfAnother(path, "type: the model's own");
  if (record.twin().graph_sha256() != CertifiedHash(graph)) return OfAnother(path, "model");
  if (SumsOf(record.twin()).refused > 0) return OfAnother(path, "kind: the compiler refused a program of it");
  TWIN_ASSIGN_OR_RETURN(const std::optional<NotAttainable> why, WhyNotAttainable(record, graph));
  if (why) return OfAnother(path, absl::StrCat("model: ", why->reason));
  return absl::OkStatus();
}

}  // namespace

absl::Status SayAttainable(const std::string& folder, Outcome& outcome) {
  TWIN_ASSIGN_OR_RETURN(const std::optional<NotAttainable> why,
                        WhyNot(folder, absl::StrCat(folder, "/", kCompileRecordName)));
  const std::string reason = why ? why->reason : "";
  outcome.json["attainable"] = {{"attainable", !why.has_value()}, {"reason", reason}};
  if (why && why->code != 0) outcome.json["attainable"]["code"] = absl::StrCat("TF", why->code);
  absl::StrAppend(&outcome.human,
                  "attainable: ", why ? "no, " : "yes, the TPU compiler takes each of its programs", reason,
                  why && why->code != 0 ? absl::StrCat(" (", absl::StrCat("TF", why->code), ")") : "", "\n");
  if (why && outcome.exit == ExitCode::kDone) outcome.exit = ExitCode::kFindings;
  return absl::OkStatus();
}

absl::Status SayLadder(const std::string& folder, const Graph& graph, const std::string& chip,
                       const Workload& workload, Outcome& outcome) {
  const std::string path = folder.empty() ? "" : absl::StrCat(folder, "/", kCompileRecordName);
  absl::Status said =
      path.empty() || !IsThere(path)
          ? Error(2109, folder.empty() ? "--ladder" : folder, "no compile record lies here",
                  "`twinforge compile` makes one; --compiled FILE names one that lies elsewhere")
          : SayCompiled(path, graph, chip, workload, outcome);
  const std::optional<Diagnostic> d = DiagnosticOf(said);
  if (!d || d->code != 2109) return said;
  outcome.json["compiled"] = {{"refused", RefusalJson(said)}};
  absl::StrAppend(&outcome.human, "  compiled: ", d->place, ": ", d->message, "; ", d->hint, "\n");
  return absl::OkStatus();
}

absl::Status SayCompiled(const std::string& path, const Graph& graph, const std::string& chip,
                         const Workload& workload, Outcome& outcome) {
  if (path.empty()) return absl::OkStatus();
  TWIN_ASSIGN_OR_RETURN(const CompileRecord record, SoundRecord(path));
  TWIN_RETURN_IF_ERROR(CheckRecordFits(record, path, graph, chip, workload));
  TWIN_ASSIGN_OR_RETURN(const double clock, ClockOf(chip));
  const CompiledSums sums = SumsOf(record.twin());
  Json compiled = {
      {"cycles", sums.cycles}, {"class", "C"}, {"uncounted", sums.uncounted}, {"clock", nullptr}};
  std::string said =
      absl::StrCat("  compiled: ", Grouped(sums.cycles), " cycles by the compiler's estimate (C), ",
                   Grouped(sums.uncounted), " ops uncounted");
  if (clock > 0) {
    const double seconds = static_cast<double>(sums.cycles) / clock;
    compiled["clock"] = clock;
    compiled["seconds"] = seconds;
    compiled["over"] = Json::object();
    absl::StrAppend(&said, "; ", HumanSeconds(seconds), " at the published clock");
    const Json& scored = outcome.json.contains("twin") ? outcome.json["twin"] : outcome.json;
    for (const Json& rung : scored["ladder"]) {
      const std::string name = rung["rung"];
      if (name != "R2" && name != "R3" && name != "R4") continue;
      const double over = seconds / rung["seconds"].get<double>();
      compiled["over"][name] = over;
      absl::StrAppend(&said, absl::StrFormat(", %.2f times %s", over, name));
    }
  } else {
    absl::StrAppend(&said, "; no clock of this chip is published, so no time");
  }
  outcome.json["compiled"] = compiled;
  absl::StrAppend(&outcome.human, said, "\n");
  return absl::OkStatus();
}

}  // namespace twinforge
