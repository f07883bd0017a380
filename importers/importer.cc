#include "importers/importer.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/file.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "importers/blueprint.h"
#include "importers/build_graph.h"
#include "importers/checkpoint.h"
#include "importers/checkpoint_folder.h"
#include "importers/claim.h"
#include "importers/compile_layout.h"
#include "importers/config_view.h"
#include "importers/family.h"
#include "re2/re2.h"
#include "weights/build.h"

namespace twinforge {
namespace {

namespace fs = std::filesystem;

// ---- the part that opening a checkpoint and reading a config alone share

struct Prepared {
  const FamilySpec* family = nullptr;
  Model model;  // family, model_type and config
  Blueprint plan;
  std::optional<DType> dtype;  // that the config states
};

absl::StatusOr<const FamilySpec*> FamilyOf(const ConfigView& config, std::string& model_type) {
  if (config.json().kind() != JsonValue::Kind::kObject) {
    return Error(1416, config.place(), "the config is not an object", "fetch the file again");
  }
  TWIN_ASSIGN_OR_RETURN(model_type, config.GetString("model_type", ""));
  const std::vector<std::string> known = SupportedModelTypes();
  if (model_type.empty()) {
    return Error(1402, config.place(), "\"model_type\" is missing",
                 absl::StrCat("add it: one of ", known.front(), " ... ", known.back()));
  }
  const FamilySpec* family = FindFamily(model_type);
  if (family != nullptr) return family;
  const std::string near = Nearest(model_type, known);
  return Error(
      1403, config.place(), absl::StrCat("model_type ", JsonQuoted(model_type, 100), " is not known"),
      near.empty() ? "docs/families.md lists those that are" : absl::StrCat("did you mean ", near, "?"));
}

absl::StatusOr<std::optional<DType>> DTypeOf(const ConfigView& config) {
  const char* key = config.Find("dtype") != nullptr ? "dtype" : "torch_dtype";
  TWIN_ASSIGN_OR_RETURN(std::string word, config.GetString(key, ""));
  if (word.empty() || word == "auto") return std::optional<DType>();
  const std::pair<const char*, DType> dtypes[] = {{"bfloat16", DType::kBF16},
                                                  {"float16", DType::kF16},
                                                  {"float32", DType::kF32},
                                                  {"float64", DType::kF64}};
  for (const auto& [name, dtype] : dtypes) {
    if (word == name || word == absl::StrCat("torch.", name)) return std::optional<DType>(dtype);
  }
  return Error(1407, config.place(),
               absl::StrCat("\"", key, "\": ", JsonQuoted(word, 100), " is not supported"));
}

absl::StatusOr<Prepared> Prepare(JsonValue json, absl::string_view place) {
  Prepared prepared;
  prepared.model.config = std::move(json);
  const ConfigView config(prepared.model.config, std::string(place));
  TWIN_ASSIGN_OR_RETURN(prepared.family, FamilyOf(config, prepared.model.model_type));
  prepared.model.family = prepared.family->name();
  TWIN_ASSIGN_OR_RETURN(prepared.dtype, DTypeOf(config));
  TWIN_ASSIGN_OR_RETURN(prepared.plan,
                        MakeBlueprint(*prepared.family, config, prepared.dtype.value_or(DType::kBF16)));
  return prepared;
}

// How the quantised checkpoint calls its format, or "" where the config states none.
std::string QuantisedAs(const ConfigView& config) {
  if (config.Find("quantization_config") == nullptr) return "";
  return config.GetString("quantization_config.quant_method", "codes and scales")
      .value_or("codes and scales");
}

// Whether the config ties `tie`.
bool Ties(const Tie& tie, const ConfigView& config) {
  const JsonValue* key = config.Find(tie.key);
  return key != nullptr && key->kind() == JsonValue::Kind::kBool ? key->as_bool()
                                                                 : tie.implied.value_or(false);
}

absl::StatusOr<JsonValue> ReadJson(const std::string& path) {
  TWIN_ASSIGN_OR_RETURN(std::string text, ReadTextFile(path));
  return ParseJson(text, path);
}

// The model's layouts, `chosen` first.
void KeepLayouts(std::vector<CompiledLayout> layouts, size_t chosen, Model& model) {
  model.layouts.push_back(std::move(layouts[chosen].layout));
  for (size_t i = 0; i < layouts.size(); ++i) {
    if (i != chosen) model.layouts.push_back(std::move(layouts[i].layout));
  }
}

// The verifier's complaint about an attribute is the config's fault: the graph says what the config said.
absl::Status AsConfigError(const absl::Status& status, absl::string_view place) {
  const std::optional<Diagnostic> diagnostic = DiagnosticOf(status);
  if (!diagnostic || diagnostic->code != 1501) return status;
  return Error(1406, place,
               absl::StrCat("it makes ", diagnostic->place, " impossible: ", diagnostic->message));
}

// ---- a config alone

constexpr int64_t kMostListed = 1500000;  // source tensors: a list takes 700 bytes of each

// One stored tensor, or a run of them that stands as one stack, and its tensors in model.sources or counted.
void AddSources(const LayoutTensor& tensor, DType dtype, const Shape& shape, bool listed,
                StoredTensors& stored, Model& model) {
  if (!listed) {
    model.unlisted.tensors += tensor.count();
    model.unlisted.bytes[dtype] +=
        tensor.count() * FileBytes(dtype, CheckedElementCount(shape).value_or(0)).value_or(0);
  }
  const bool stands_as_one = tensor.count() > 1 && tensor.parts.size() == 1;
  if (stands_as_one)
    stored.emplace(tensor.NameAt(0),
                   StackedSources(tensor.name, 0, tensor.count(), tensor.name_end, dtype, shape));
  for (int64_t i = 0; i < (listed || !stands_as_one ? tensor.count() : 0); ++i) {
    const std::string name = tensor.NameAt(i);
    WeightPtr source = Source(name, dtype, shape);
    if (!stands_as_one && !stored.emplace(name, source).second) continue;
    if (listed) model.sources.push_back({name, "", std::move(source), ""});
  }
}

// What `layout` stores, without the roles that are `tied`.
absl::StatusOr<StoredTensors> SourcesFor(const Layout& layout, const std::set<std::string>& tied,
                                         const std::map<std::string, ParamType>& types, Model& model) {
  std::vector<const LayoutTensor*> tensors;
  int64_t count = 0;
  for (const LayoutTensor& tensor : layout.tensors) {
    if (tensor.parts.size() == 1 && tied.contains(tensor.parts[0].role)) continue;
    tensors.push_back(&tensor);
    count += tensor.count();
  }
  StoredTensors stored;
  for (const LayoutTensor* tensor : tensors) {
    TWIN_ASSIGN_OR_RETURN(const Shape shape, StoredShape(*tensor, types));
    AddSources(*tensor, types.at(tensor->parts[0].role).dtype, shape, count <= kMostListed, stored, model);
  }
  std::sort(model.sources.begin(), model.sources.end(),
            [](const SourceTensor& a, const SourceTensor& b) { return a.name < b.name; });
  return stored;
}

absl::StatusOr<Model> FromConfig(JsonValue json, absl::string_view place) {
  TWIN_ASSIGN_OR_RETURN(Prepared prepared, Prepare(std::move(json), place));
  Model& model = prepared.model;
  const ConfigView config(model.config, std::string(place));
  if (const std::string quantised = QuantisedAs(config); !quantised.empty()) {
    model.warnings.push_back(absl::StrCat(place, ": the checkpoint is stored as ", quantised,
                                          "; it is counted in its ",
                                          Name(prepared.dtype.value_or(DType::kBF16)), " form"));
  }
  if (!prepared.dtype) {
    model.warnings.push_back(absl::StrCat(place, ": no dtype is stated; bf16 is assumed"));
  }
  std::vector<CompiledLayout> layouts = CompileLayouts(*prepared.family, config, prepared.plan);
  const Layout& layout = layouts[0].layout;
  std::set<std::string> tied;
  for (const Tie& tie : layout.ties) {
    if (Ties(tie, config)) tied.insert(tie.role);
  }
  TWIN_ASSIGN_OR_RETURN(const StoredTensors stored, SourcesFor(layout, tied, prepared.plan.types, model));
  std::map<std::string, WeightPtr> programs = ProgramsFromFiles(layout, prepared.plan.types, stored);
  absl::StatusOr<Graph> graph =
      BuildGraph(model.family, std::move(prepared.plan), layouts[0], std::move(programs));
  if (!graph.ok()) return AsConfigError(graph.status(), place);
  model.graph = *std::move(graph);
  KeepLayouts(std::move(layouts), 0, model);
  return std::move(model);
}

// ---- a checkpoint

// Files that travel with the weights: tokenizer, templates, licence, what the model card says.
absl::StatusOr<std::vector<std::string>> CompanionsIn(const std::string& root,
                                                      std::vector<std::string>& warnings) {
  static const LazyRE2 pattern = {
      R"(tokenizer.*\.json|tokenizer\.model.*|.*\.model|.*\.tiktoken|merges\.txt|vocab\..*)"
      R"(|README\.md|generation_config\.json|special_tokens_map\.json|added_tokens\.json|chat_template.*)"
      R"(|(LICENSE|LICENCE|NOTICE|USE_POLICY|COPYING).*)"};
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(root, error)) {
    const std::string name = entry.path().filename().string();
    if (RE2::FullMatch(name, *pattern)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  std::vector<std::string> companions;
  for (const std::string& name : names) {
    TWIN_RETURN_IF_ERROR(CheckInside(root, name));
    if (fs::is_regular_file(absl::StrCat(root, "/", name), error)) {
      companions.push_back(name);
    } else {
      warnings.push_back(absl::StrCat(name, " is no regular file and is not carried along"));
    }
  }
  return companions;
}

std::string ConfigPathOf(const std::string& root, const std::string& config_path) {
  return config_path.empty() ? absl::StrCat(root, "/config.json") : config_path;
}

absl::StatusOr<JsonValue> ReadConfigOf(const std::string& root, const std::string& config_path) {
  const std::string path = ConfigPathOf(root, config_path);
  std::error_code error;
  if (!fs::exists(path, error)) {
    return Error(1401, path, "there is no config", "name it with --config if it lies elsewhere");
  }
  if (config_path.empty()) TWIN_RETURN_IF_ERROR(CheckInside(root, "config.json"));
  return ReadJson(path);
}

absl::Status NoteFiles(const Checkpoint& checkpoint, Model& model) {
  model.root = checkpoint.root();
  for (const StoredFile& file : checkpoint.files()) {
    model.files.push_back({file.name, file.identity.size, file.header_sha256});
  }
  // What a manifest keeps as it is, whether or not the model was opened by it.
  for (const char* text : {"config.json", "generation_config.json", "model.safetensors.index.json"})
    TWIN_RETURN_IF_ERROR(CheckInsideIfThere(model.root, text));
  TWIN_ASSIGN_OR_RETURN(model.companions, CompanionsIn(model.root, model.warnings));
  for (const std::string& warning : checkpoint.warnings()) model.warnings.push_back(warning);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Model> ModelFromConfigText(absl::string_view json, absl::string_view place) {
  TWIN_ASSIGN_OR_RETURN(JsonValue config, ParseJson(json, place));
  return FromConfig(std::move(config), place);
}

absl::StatusOr<Model> ModelFromConfig(const std::string& config_path) {
  std::error_code error;
  const bool folder = fs::is_directory(config_path, error);
  const std::string path = folder ? absl::StrCat(config_path, "/config.json") : config_path;
  TWIN_ASSIGN_OR_RETURN(JsonValue config, ReadJson(path));
  return FromConfig(std::move(config), path);
}

namespace {

absl::StatusOr<Model> FromCheckpoint(std::shared_ptr<const Checkpoint> checkpoint, JsonValue json,
                                     const std::string& place) {
  TWIN_ASSIGN_OR_RETURN(Prepared prepared, Prepare(std::move(json), place));
  Model& model = prepared.model;
  const ConfigView config(model.config, place);
  if (const std::string quantised = QuantisedAs(config); !quantised.empty()) {
    return Error(1408, place,
                 absl::StrCat("this checkpoint is stored as ", quantised, " (quantization_config)"),
                 "convert it to bf16 first; quantised formats are not supported yet");
  }
  std::vector<CompiledLayout> layouts = CompileLayouts(*prepared.family, config, prepared.plan);
  const size_t chosen = ChooseLayout(layouts, *checkpoint);
  std::set<std::string> tied;
  for (const Tie& tie : layouts[chosen].layout.ties) {
    if (Ties(tie, config)) tied.insert(tie.role);
  }
  TWIN_ASSIGN_OR_RETURN(Claim claim,
                        ClaimTensors(layouts[chosen].layout, *checkpoint, tied, prepared.plan.types));
  if (prepared.dtype && claim.dtype != *prepared.dtype) {
    return Error(
        1412, place,
        absl::StrCat("the config says ", Name(*prepared.dtype), ", the tensors are ", Name(claim.dtype)),
        "correct dtype (or torch_dtype) in config.json");
  }
  std::map<std::string, WeightPtr> programs =
      ProgramsFromFiles(layouts[chosen].layout, prepared.plan.types, claim.stored);
  absl::StatusOr<Graph> graph =
      BuildGraph(model.family, std::move(prepared.plan), layouts[chosen], std::move(programs));
  if (!graph.ok()) return AsConfigError(graph.status(), place);
  model.graph = *std::move(graph);
  model.sources = std::move(claim.sources);
  KeepLayouts(std::move(layouts), chosen, model);
  TWIN_RETURN_IF_ERROR(NoteFiles(*checkpoint, model));
  const std::string generation = absl::StrCat(model.root, "/generation_config.json");
  std::error_code error;
  if (fs::exists(generation, error)) {
    TWIN_RETURN_IF_ERROR(CheckInside(model.root, "generation_config.json"));
    TWIN_ASSIGN_OR_RETURN(model.generation_config, ReadJson(generation));
  }
  model.reader = std::move(checkpoint);
  return std::move(model);
}

}  // namespace

absl::StatusOr<Model> OpenModel(const std::string& path, const std::string& config_path) {
  TWIN_ASSIGN_OR_RETURN(std::shared_ptr<const Checkpoint> checkpoint, Checkpoint::Open(path));
  TWIN_ASSIGN_OR_RETURN(JsonValue json, ReadConfigOf(checkpoint->root(), config_path));
  const std::string place = ConfigPathOf(checkpoint->root(), config_path);
  return FromCheckpoint(std::move(checkpoint), std::move(json), place);
}

absl::StatusOr<Model> OpenModelBy(JsonValue config, const std::string& place, const std::string& path) {
  TWIN_ASSIGN_OR_RETURN(std::shared_ptr<const Checkpoint> checkpoint, Checkpoint::Open(path));
  return FromCheckpoint(std::move(checkpoint), std::move(config), place);
}

}  // namespace twinforge
