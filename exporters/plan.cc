#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "exporters/exporter.h"
#include "exporters/generation_config.h"
#include "exporters/header.h"
#include "exporters/manifest.h"
#include "exporters/plan_parts.h"
#include "exporters/reference_files.h"
#include "reference/onnx/write_onnx.h"

namespace twinforge {
namespace {

// What one target says of the model, before it is cut into files.
struct Content {
  std::vector<TwinTensor> tensors;
  JsonValue config;                // null: none is written
  const Layout* layout = nullptr;  // null: the twin's own
  std::vector<std::string> warnings;
};

absl::StatusOr<Content> ContentOfLayout(const Model& model, const Layout& layout) {
  Content content;
  TWIN_ASSIGN_OR_RETURN(content.tensors, TensorsOfLayout(layout, model.graph));
  content.layout = &layout;
  TWIN_ASSIGN_OR_RETURN(content.config, ConfigFromGraph(layout, model.graph, model.config));
  return content;
}

// The family's first layout that can say the graph; where none can, the reason of the source's own.
absl::StatusOr<Content> HfContent(const Model& model) {
  if (model.layouts.empty())
    return Error(1601, model.family, "this model has no layout on disk to be written in");
  absl::Status first;
  for (const Layout& layout : model.layouts) {
    absl::StatusOr<Content> content = ContentOfLayout(model, layout);
    if (content.ok()) return content;
    if (first.ok()) first = content.status();
  }
  return first;
}

// An ONNX model says itself what it takes, and shows no padded vocabulary: it goes without a config.
absl::StatusOr<Content> TwinContent(const Model& model, Target target) {
  Content content;
  content.tensors = TwinTensors(model.graph);
  if (model.layouts.empty() || target == Target::kOnnx) return content;
  absl::StatusOr<JsonValue> config = ConfigFromGraph(model.layouts[0], model.graph, model.config);
  if (config.ok()) {
    content.config = *std::move(config);
  } else {
    std::optional<Diagnostic> why = DiagnosticOf(config.status());
    content.warnings.push_back(
        absl::StrCat("config.json is not written, since its keys can't say this twin (",
                     why.has_value() ? why->message : std::string(config.status().message()),
                     "); the graph in the manifest does"));
  }
  return content;
}

// ---- files

std::string FileName(size_t at, size_t count) {
  if (count == 1) return "model.safetensors";
  return absl::StrFormat("model-%05d-of-%05d.safetensors", at + 1, count);
}

HeaderEntry EntryOf(const TwinTensor& tensor) {
  return {tensor.name, tensor.program->dtype(), tensor.program->shape(),
          FileBytes(tensor.program->dtype(), tensor.program->element_count()).value_or(0)};
}

// Tensors in their order, a new file where the next would pass `limit`, as the Hub's own libraries cut.
std::vector<std::vector<TwinTensor>> Shard(std::vector<TwinTensor> tensors, int64_t limit) {
  std::vector<std::vector<TwinTensor>> shards(1);
  int64_t bytes = 0;
  for (TwinTensor& tensor : tensors) {
    int64_t more = EntryOf(tensor).bytes;
    if (!shards.back().empty() && bytes + more > limit) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += more;
    shards.back().push_back(std::move(tensor));
  }
  return shards;
}

OutputFile MakeFile(std::string name, std::vector<TwinTensor> tensors, const Metadata& metadata) {
  OutputFile file{.name = std::move(name)};
  std::vector<HeaderEntry> unordered;
  std::vector<size_t> order;
  for (const TwinTensor& tensor : tensors) {
    order.push_back(unordered.size());
    unordered.push_back(EntryOf(tensor));
  }
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return WrittenBefore(unordered[a], unordered[b]); });
  std::vector<HeaderEntry> entries;
  entries.reserve(order.size());
  file.tensors.reserve(order.size());
  int64_t offset = 0;
  for (size_t at : order) {
    TwinTensor& tensor = tensors[at];
    entries.push_back(std::move(unordered[at]));
    file.tensors.push_back({std::move(tensor.name), std::move(tensor.program), std::move(tensor.roles),
                            offset, entries.back().bytes});
    offset += entries.back().bytes;
  }
  file.header = WriteHeader(entries, metadata);
  file.bytes = static_cast<int64_t>(file.header.size()) + offset;
  return file;
}

// What an ONNX model's operators were written from, for whoever finds the file alone.
std::vector<std::pair<std::string, std::string>> OnnxMetadata(const Model& model) {
  std::set<std::string> steps;
  for (const Node& node : model.graph.nodes()) steps.insert(node.step);
  for (const auto& [role, param] : model.graph.params()) steps.insert(param.laid_by);
  steps.erase("");
  return {{"org.twinforge.family", model.family},
          {"org.twinforge.model_type", model.model_type},
          {"org.twinforge.steps", absl::StrJoin(steps, "; ")}};
}

// model.onnx, and the file that its weights lie in.
absl::Status AddOnnx(const Model& model, const ExportOptions& options, ExportPlan& plan) {
  OnnxWriteOptions writing{.dtype = options.dtype, .metadata = OnnxMetadata(model)};
  if (options.opset != 0) writing.opset = options.opset;
  TWIN_ASSIGN_OR_RETURN(WrittenOnnx written, WriteOnnx(model.graph, writing));
  plan.opset = writing.opset;
  plan.computed_in = written.computed_in;
  OutputFile file{.name = kOnnxDataName};
  for (OnnxStoredWeight& weight : written.weights) {
    file.bytes = weight.offset + weight.bytes;
    plan.bytes_out += weight.bytes;
    file.tensors.push_back({std::move(weight.tensor.name), std::move(weight.tensor.program),
                            std::move(weight.tensor.roles), weight.offset, weight.bytes});
  }
  plan.files.push_back(std::move(file));
  plan.small_files.push_back({kOnnxModelName, std::move(written.model)});
  return absl::OkStatus();
}

// 4- and 6-bit tensors must fill whole bytes.
absl::Status CheckPacking(const std::vector<TwinTensor>& tensors) {
  for (const TwinTensor& tensor : tensors) {
    if (FileBytes(tensor.program->dtype(), tensor.program->element_count()).has_value()) continue;
    return Error(1610, tensor.name,
                 absl::StrCat(tensor.program->element_count(), " elements of ", Name(tensor.program->dtype()),
                              " do not fill whole bytes"));
  }
  return absl::OkStatus();
}

void AddTensorFiles(const ExportOptions& options, std::vector<TwinTensor> tensors, ExportPlan& plan) {
  std::vector<std::vector<TwinTensor>> shards =
      Shard(std::move(tensors), std::max<int64_t>(1, options.shard_bytes));
  Metadata metadata = {{"format", "pt"}, {"twin", "twin.manifest.textproto"}};
  if (options.target == Target::kTwin) metadata[0].second = "twin";
  for (size_t i = 0; i < shards.size(); ++i) {
    plan.files.push_back(MakeFile(FileName(i, shards.size()), std::move(shards[i]), metadata));
    for (const OutputTensor& tensor : plan.files.back().tensors) plan.bytes_out += tensor.bytes;
  }
}

// ---- small files

absl::Status AddSmallFiles(const Model& model, const JsonValue& config, ExportPlan& plan) {
  auto add = [&](std::string name, std::string content) {
    plan.small_files.push_back({std::move(name), std::move(content)});
  };
  if (!config.is_null()) add("config.json", config.Text() + "\n");
  JsonValue generation = JsonValue::Null();
  if (plan.target != Target::kOnnx) {
    TWIN_ASSIGN_OR_RETURN(generation, TwinGenerationConfig(model, model.graph));
  }
  if (!generation.is_null()) add("generation_config.json", generation.Text() + "\n");
  if (plan.files.size() > 1) add("model.safetensors.index.json", IndexText(plan.files));
  std::set<std::string> written;
  for (const SmallFile& file : plan.small_files) written.insert(file.name);
  for (const OutputFile& file : plan.files) written.insert(file.name);
  plan.companions = CarriedAlong(model.companions, std::move(written));
  return absl::OkStatus();
}

// A twin that no code is written for does without, and says so.
absl::Status AddReference(const Model& model, const Content& content, ExportPlan& plan) {
  absl::StatusOr<std::vector<SmallFile>> files = TwinReference(model.graph, content.tensors, content.layout);
  if (files.ok()) {
    plan.small_files = *std::move(files);
    return absl::OkStatus();
  }
  if (!absl::IsUnimplemented(files.status())) return files.status();
  plan.warnings.push_back(absl::StrCat("reference/ is not written: ", files.status().message()));
  return absl::OkStatus();
}

// ---- ledger

absl::Status CheckLedger(const Model& model, ExportPlan& plan) {
  std::vector<NamedProgram> programs;
  for (const OutputFile& file : plan.files) {
    for (const OutputTensor& tensor : file.tensors) programs.push_back({tensor.name, tensor.program});
  }
  std::vector<WeightPtr> sources;
  for (const SourceTensor& source : model.sources) sources.push_back(source.source);
  plan.ledger = Ledger(programs, sources);
  int64_t lost = 0;
  const LedgerRow* first = nullptr;
  for (size_t i = 0; i < plan.ledger.size(); ++i) {
    LedgerRow& row = plan.ledger[i];
    if (!model.sources[i].ignored.empty() && row.fate == Fate::kUnused) row.reason = model.sources[i].ignored;
    bool named = !model.sources[i].ignored.empty();
    if (named || (row.fate != Fate::kPartial && row.fate != Fate::kUnused)) continue;
    if (lost++ == 0) first = &row;
  }
  if (lost == 0) return absl::OkStatus();
  return Error(
      1603, first->source,
      absl::StrCat(first->fate == Fate::kUnused ? "nothing in the twin holds it" : first->reason,
                   lost > 1 ? absl::StrCat("; so it is with ", lost - 1, " more") : ""),
      "no step of the recipe drops these by name: this is a fault of a step or of the family's description");
}

}  // namespace

absl::string_view TargetName(Target target) {
  return target == Target::kHf ? "hf" : target == Target::kTwin ? "twin" : "onnx";
}

std::optional<Target> TargetFromName(absl::string_view name) {
  for (Target target : {Target::kHf, Target::kTwin, Target::kOnnx}) {
    if (TargetName(target) == name) return target;
  }
  return std::nullopt;
}

absl::StatusOr<ExportPlan> PlanExport(const Model& model, const ExportOptions& options) {
  if (model.unlisted.tensors > 0) {
    return Error(1414, "--from-config",
                 absl::StrCat("the config calls for ", model.unlisted.tensors,
                              " tensors, too many to plan one by one"),
                 "`twinforge inspect` and `twinforge score` count them");
  }
  TWIN_ASSIGN_OR_RETURN(
      Content content, options.target == Target::kHf ? HfContent(model) : TwinContent(model, options.target));
  TWIN_RETURN_IF_ERROR(CheckPacking(content.tensors));
  ExportPlan plan;
  plan.target = options.target;
  if (content.layout != nullptr) plan.layout = content.layout->name;
  plan.warnings = std::move(content.warnings);
  if (options.target == Target::kOnnx) {
    TWIN_RETURN_IF_ERROR(AddOnnx(model, options, plan));
  } else {
    if (options.reference) TWIN_RETURN_IF_ERROR(AddReference(model, content, plan));
    AddTensorFiles(options, std::move(content.tensors), plan);
  }
  TWIN_RETURN_IF_ERROR(AddSmallFiles(model, content.config, plan));
  TWIN_RETURN_IF_ERROR(CheckLedger(model, plan));
  TWIN_RETURN_IF_ERROR(PlanMemory(static_cast<int64_t>(model.sources.size()), options, plan));
  plan.digest = DigestOf(plan, model.files);
  return plan;
}

}  // namespace twinforge
