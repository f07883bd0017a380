// twinforge inspect MODEL: what it is, exactly.
#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "cli/onnx_files.h"
#include "cli/open.h"
#include "cli/verb.h"
#include "importers/checkpoint.h"
#include "importers/importer.h"
#include "onnx/read.h"
#include "report/table.h"

namespace twinforge {
namespace {

// Every size that an axis name has in the model: one, or several where layers differ.
std::map<std::string, std::set<int64_t>> AxisSizes(const Graph& graph) {
  std::map<std::string, std::set<int64_t>> sizes;
  for (const auto& [role, param] : graph.params()) {
    for (const ParamAxis& axis : param.type.axes) sizes[axis.name].insert(axis.size);
  }
  return sizes;
}

// Of what is stored, tied tensors once.
std::map<std::string, int64_t> BytesByDType(const Model& model) {
  std::map<std::string, int64_t> bytes;
  for (const auto& [dtype, count] : model.unlisted.bytes) bytes[std::string(Name(dtype))] += count;
  for (const SourceTensor& tensor : model.sources) {
    const Weight& source = *tensor.source;
    bytes[std::string(Name(source.dtype()))] += FileBytes(source.dtype(), source.element_count()).value_or(0);
  }
  return bytes;
}

int64_t StoredCount(const Model& model) {
  return model.unlisted.tensors + static_cast<int64_t>(model.sources.size());
}

// Axes that meet the TPU's lanes: how much of the padded axis would lie idle.
struct FitRow {
  std::string axis;
  int64_t size, padded;
  double idle;
};
std::vector<FitRow> TpuFit(const Graph& graph, int64_t multiple) {
  std::vector<FitRow> rows;
  for (const auto& [axis, sizes] : AxisSizes(graph)) {
    static const std::set<std::string> kLaneAxes = {"head_dim", "d_ff",       "shared_ff", "d_model", "vocab",
                                                    "nope_dim", "v_head_dim", "kv_lora",   "q_lora"};
    if (kLaneAxes.count(axis) == 0) continue;
    for (int64_t size : sizes) {
      const int64_t padded = (size + multiple - 1) / multiple * multiple;
      rows.push_back({axis, size, padded, 1.0 - static_cast<double>(size) / static_cast<double>(padded)});
    }
  }
  return rows;
}

absl::Status AddIntegrity(const ModelFlags& flags, int threads, Outcome& outcome) {
  TWIN_ASSIGN_OR_RETURN(std::shared_ptr<const Checkpoint> checkpoint, Checkpoint::Open(flags.path));
  TWIN_ASSIGN_OR_RETURN(std::vector<IntegrityRow> rows, ScanIntegrity(*checkpoint, threads));
  TWIN_RETURN_IF_ERROR(checkpoint->CheckUnchanged());
  outcome.json["integrity"] = Json::array();
  absl::StrAppend(&outcome.human, "\nintegrity: ", checkpoint->tensors().size(), " tensors read, ",
                  rows.empty() ? "nothing to report\n" : absl::StrCat(rows.size(), " findings\n"));
  Table table({"tensor", "file", "finding"});
  bool bad = false;
  for (const IntegrityRow& row : rows) {
    table.Row({row.tensor, row.file, row.finding});
    outcome.json["integrity"].push_back(
        {{"tensor", row.tensor}, {"file", row.file}, {"finding", row.finding}});
    bad |= row.finding.find("NaN") != std::string::npos || row.finding.find("Inf") != std::string::npos ||
           row.finding.find("all zero") != std::string::npos;
  }
  if (!rows.empty()) absl::StrAppend(&outcome.human, table.Text());
  if (bad) outcome.exit = ExitCode::kFindings;
  return absl::OkStatus();
}

Json DimsJson(const Graph& graph) {
  Json dims = Json::object();
  for (const auto& [axis, sizes] : AxisSizes(graph)) {
    if (sizes.size() == 1) {
      dims[axis] = *sizes.begin();
    } else {
      dims[axis] = std::vector<int64_t>(sizes.begin(), sizes.end());
    }
  }
  return dims;
}

void Describe(const OpenedModel& opened, Outcome& outcome) {
  const Model& model = opened.model;
  const ParameterCounts counts = CountParameters(model.graph);
  const std::map<std::string, int64_t> dtypes = BytesByDType(model);
  int64_t bytes = 0;
  for (const auto& [dtype, n] : dtypes) bytes += n;
  std::string& human = outcome.human;
  absl::StrAppend(&human, model.family, " (model_type ", model.model_type, ", layout ", opened.layout, ")\n");
  absl::StrAppend(&human, "  parameters  ", Grouped(counts.total), " total, ", Grouped(counts.active),
                  " active\n");
  absl::StrAppend(&human, "  stored      ", StoredCount(model), " tensors in ", model.files.size(),
                  " files, ", HumanBytes(bytes));
  for (const auto& [dtype, n] : dtypes) absl::StrAppend(&human, ", ", dtype, " ", HumanBytes(n));
  absl::StrAppend(&human, "\n  sizes       ");
  std::vector<std::string> sizes;
  for (const auto& [axis, values] : AxisSizes(model.graph))
    sizes.push_back(absl::StrCat(axis, " ", absl::StrJoin(values, "/")));
  absl::StrAppend(&human, absl::StrJoin(sizes, ", "),
                  "\n\nTPU fit: idle share of each axis on 128 lanes and on a 256-wide matrix unit\n");
  Table table({"axis", "size", "to 128", "idle", "to 256", "idle"});
  const std::vector<FitRow> lanes = TpuFit(model.graph, 128), wide = TpuFit(model.graph, 256);
  outcome.json["tpu_fit"] = Json::array();
  for (size_t i = 0; i < lanes.size(); ++i) {
    table.Row({lanes[i].axis, absl::StrCat(lanes[i].size), absl::StrCat(lanes[i].padded),
               Percent(lanes[i].idle), absl::StrCat(wide[i].padded), Percent(wide[i].idle)});
    outcome.json["tpu_fit"].push_back({{"axis", lanes[i].axis},
                                       {"size", lanes[i].size},
                                       {"to_128", lanes[i].padded},
                                       {"idle_128", lanes[i].idle},
                                       {"to_256", wide[i].padded},
                                       {"idle_256", wide[i].idle}});
  }
  absl::StrAppend(&human, table.Text());
  for (const std::string& warning : model.warnings) absl::StrAppend(&human, "note: ", warning, "\n");
  outcome.json["family"] = model.family;
  outcome.json["model_type"] = model.model_type;
  outcome.json["layout"] = opened.layout;
  outcome.json["parameters"] = {{"total", counts.total},
                                {"active", counts.active},
                                {"embedding", counts.embedding},
                                {"expert", counts.expert}};
  outcome.json["stored"] = {{"tensors", StoredCount(model)}, {"files", model.files.size()}, {"bytes", bytes}};
  outcome.json["bytes_by_dtype"] = dtypes;
  outcome.json["dims"] = DimsJson(model.graph);
  outcome.json["warnings"] = model.warnings;
}

absl::StatusOr<Outcome> Inspect(const ModelFlags& flags, bool integrity, int threads) {
  if (IsOnnxPath(flags.path) && flags.from_config.empty()) {
    if (integrity || !flags.config.empty()) {
      return Error(1003, flags.path, "an ONNX model is read whole as it is, and has no config",
                   "leave out --integrity and --config");
    }
    return InspectOnnx(flags.path);
  }
  Outcome outcome;
  TWIN_ASSIGN_OR_RETURN(const OpenedModel opened, OpenModelOrTwin(flags));
  Describe(opened, outcome);
  if (!integrity) return outcome;
  if (!opened.model.has_bytes()) {
    return Error(1003, "--integrity", "reads tensors, and a config alone has none",
                 "name the checkpoint's folder");
  }
  TWIN_RETURN_IF_ERROR(AddIntegrity(flags, threads, outcome));
  return outcome;
}

}  // namespace

void AddInspect(CLI::App& app, Invocation& invocation) {
  static ModelFlags flags;
  static bool integrity = false;
  static int threads = 2;
  CLI::App* verb = AddVerb(
      app, invocation, "inspect", "what a model is, exactly: family, sizes, parameters, TPU fit",
      "  twinforge inspect ./Llama-3.1-8B\n  twinforge inspect --from-config config.json --format json\n"
      "  twinforge inspect ./model --integrity\n  twinforge inspect model.onnx\n");
  AddModelFlags(verb, flags);
  verb->add_flag("--integrity", integrity, "read every tensor: all-zero, constant, NaN and Inf are findings");
  verb->add_option("--threads", threads, "readers for --integrity")->check(CLI::Range(1, 256));
  SetRun(verb, invocation, [] { return Inspect(flags, integrity, threads); });
}

}  // namespace twinforge
