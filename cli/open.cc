#include "cli/open.h"

#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "cost/score.h"
#include "importers/checkpoint.h"
#include "importers/checkpoint_folder.h"
#include "importers/importer.h"
#include "importers/onnx/raise.h"
#include "ir/text.h"
#include "onnx/external_weights.h"
#include "onnx/read.h"
#include "reference/onnx/write_onnx.h"
#include "weights/build.h"

namespace twinforge {

// A link to nothing is a damaged twin, not a checkpoint without a manifest.
bool IsTwin(const std::string& path) {
  struct stat info = {};
  return lstat(absl::StrCat(path, "/", kManifestName).c_str(), &info) == 0;
}

absl::StatusOr<TwinManifest> OpenManifest(const std::string& path) {
  TWIN_RETURN_IF_ERROR(CheckInsideIfThere(path, kManifestName));
  TWIN_ASSIGN_OR_RETURN(TwinManifest manifest, ReadManifest(path));
  for (const ManifestFile& file : manifest.files) TWIN_RETURN_IF_ERROR(CheckInsideIfThere(path, file.name));
  TWIN_RETURN_IF_ERROR(CheckTwinFiles(manifest, path));
  return manifest;
}

namespace {

// A twin written as ONNX holds its tensors as the initializers of its model.
absl::Status OpenOnnxTensors(StoredTwin& stored) {
  TWIN_RETURN_IF_ERROR(CheckInsideIfThere(stored.root, kOnnxModelName));
  TWIN_ASSIGN_OR_RETURN(const auto weights,
                        OnnxExternalWeights::Open(absl::StrCat(stored.root, "/", kOnnxModelName)));
  stored.reader = weights;
  for (const OnnxExternalWeights::Tensor& tensor : weights->tensors())
    stored.tensors.push_back({tensor.name, tensor.file, tensor.source, ""});
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<OpenedTwin> OpenTwinFolder(const std::string& path) {
  OpenedTwin twin;
  TWIN_ASSIGN_OR_RETURN(twin.manifest, OpenManifest(path));
  twin.stored.root = path;
  if (twin.manifest.target == Target::kOnnx) {
    TWIN_RETURN_IF_ERROR(OpenOnnxTensors(twin.stored));
    return twin;
  }
  TWIN_ASSIGN_OR_RETURN(std::shared_ptr<const Checkpoint> checkpoint, Checkpoint::Open(path));
  twin.stored.reader = checkpoint;
  for (const StoredTensor& tensor : checkpoint->tensors()) {
    SourceTensor row;
    row.name = tensor.name;
    row.file = checkpoint->files()[tensor.file].name;
    row.source = Source(tensor.name, tensor.dtype, tensor.shape);
    twin.stored.tensors.push_back(std::move(row));
  }
  return twin;
}

namespace {

// config.json of a twin.
absl::StatusOr<JsonValue> ConfigOf(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/config.json");
  TWIN_RETURN_IF_ERROR(CheckInsideIfThere(folder, "config.json"));
  TWIN_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  return ParseJson(text, path);
}

// The class that carries a twin written as hf in place of its own family's: its model_type, or "".
absl::StatusOr<std::string> CarrierOf(const TwinManifest& manifest, const std::string& folder) {
  if (manifest.target != Target::kHf) return "";
  TWIN_ASSIGN_OR_RETURN(const JsonValue config, ConfigOf(folder));
  const JsonValue* said = config.FindPath("model_type");
  if (said == nullptr || said->kind() != JsonValue::Kind::kString) return "";
  return said->as_string() == manifest.model_type ? "" : said->as_string();
}

// The checkpoint in a carried twin's folder, its config said in the words of its own family: it tells where
// roles lie and of what sizes they are, and the manifest's graph tells the rest.
absl::StatusOr<Model> OpenCarried(const TwinManifest& manifest, const std::string& folder) {
  TWIN_ASSIGN_OR_RETURN(JsonValue config, ConfigOf(folder));
  config.Set("model_type", JsonValue::String(manifest.model_type));
  for (const SmallFile& text : manifest.source_texts) {
    if (text.name != "config.json") continue;
    TWIN_ASSIGN_OR_RETURN(const JsonValue source, ParseJson(text.content, "config.json of the source"));
    const JsonValue* classes = source.FindPath("architectures");
    config.Set("architectures", classes == nullptr ? JsonValue::Null() : *classes);
  }
  return OpenModelBy(std::move(config), absl::StrCat(folder, "/config.json"), folder);
}

}  // namespace

absl::StatusOr<Model> OpenCheckpoint(const std::string& path, const std::string& config) {
  if (IsOnnxPath(path)) {
    if (config.empty()) return OpenOnnxModel(path);
    return Error(1003, "--config", "an ONNX model has no config", "leave it out");
  }
  if (!IsTwin(path)) return OpenModel(path, config);
  TWIN_ASSIGN_OR_RETURN(const TwinManifest manifest, OpenManifest(path));
  TWIN_ASSIGN_OR_RETURN(const std::string carrier, CarrierOf(manifest, path));
  if (manifest.target == Target::kHf && carrier.empty()) return OpenModel(path, config);
  return Error(
      1804, path,
      absl::StrCat("is a twin ",
                   carrier.empty() ? std::string(manifest.target == Target::kOnnx ? "written as an ONNX model"
                                                                                  : "in the native layout")
                                   : absl::StrCat("that ", JsonQuoted(carrier, 100), " carries"),
                   ", and this verb needs a checkpoint of a family that is read"),
      "`twinforge unforge` gives its source back; `inspect`, `eval` and `score` read it as it is");
}

absl::StatusOr<OpenedModel> OpenModelOrTwin(const ModelFlags& flags) {
  OpenedModel opened;
  if (!flags.from_config.empty() || flags.path.empty() || !IsTwin(flags.path)) {
    TWIN_ASSIGN_OR_RETURN(opened.model, OpenFlags(flags));
    opened.layout = opened.model.layouts.empty() ? "onnx" : opened.model.layouts[0].name;
    return opened;
  }
  TWIN_ASSIGN_OR_RETURN(OpenedTwin twin, OpenTwinFolder(flags.path));
  Model imported;
  const bool hf = twin.manifest.target == Target::kHf;
  TWIN_ASSIGN_OR_RETURN(const std::string carrier, CarrierOf(twin.manifest, flags.path));
  if (hf && carrier.empty()) {
    TWIN_ASSIGN_OR_RETURN(imported, OpenModel(flags.path, flags.config));
  } else if (hf) {
    TWIN_ASSIGN_OR_RETURN(imported, OpenCarried(twin.manifest, flags.path));
  }
  TWIN_ASSIGN_OR_RETURN(opened.model, OpenTwin(twin.manifest, twin.stored, hf ? &imported : nullptr));
  opened.layout = hf ? twin.manifest.layout : std::string(TargetName(twin.manifest.target));
  if (!twin.manifest.provenance.source_graph.empty()) {
    TWIN_ASSIGN_OR_RETURN(opened.source_graph, ParseGraph(twin.manifest.provenance.source_graph));
  }
  return opened;
}

TwinTarget TargetOf(const RecipeFlags& flags) {
  TwinTarget target;
  target.chip = flags.chip;
  if (const absl::StatusOr<ChipSummary> known = FindChip(flags.chip); known.ok()) target.chip = known->id;
  target.shards = flags.shards;
  target.kernel = flags.kernel;
  target.skip.insert(flags.skip.begin(), flags.skip.end());
  return target;
}

}  // namespace twinforge
