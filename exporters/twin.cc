#include "exporters/twin.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "ir/rewriter.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace twinforge {
namespace {

std::string Describe(const WeightPtr& w) { return absl::StrCat(Name(w->dtype()), ShapeText(w->shape())); }

// The config that lies beside the twin's tensors, or null.
JsonValue StoredJson(const std::string& root, absl::string_view name) {
  std::string path = absl::StrCat(root, "/", name);
  absl::StatusOr<std::string> text = ReadTextFile(path);
  if (!text.ok()) return JsonValue::Null();
  absl::StatusOr<JsonValue> value = ParseJson(*text, path);
  return value.ok() ? *std::move(value) : JsonValue::Null();
}

// For each role the program over the twin's tensors that yields its canonical parameter.
absl::StatusOr<std::map<std::string, WeightPtr>> RolePrograms(const TwinManifest& manifest,
                                                              const Graph& graph, const Model* imported) {
  if (manifest.target != Target::kHf) return RolesFromTwin(graph);
  std::map<std::string, WeightPtr> programs;
  if (imported == nullptr) return programs;
  for (const auto& [role, param] : imported->graph.params()) programs[role] = param.program;
  return programs;
}

// Parameters of `graph` read as `programs` say; nodes keep the step that made them.
absl::Status Rebind(const std::map<std::string, WeightPtr>& programs, Graph& graph) {
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node node = graph.nodes()[n];
    Rewriter rewriter(graph, node.step);
    for (const auto& [slot, role] : node.params) {
      const Param param = *graph.FindParam(role);
      auto found = programs.find(role);
      if (found == programs.end()) return Error(1803, role, "no stored tensor holds this parameter");
      if (found->second->shape() != param.type.shape() || found->second->dtype() != param.type.dtype) {
        return Error(1803, role,
                     absl::StrCat("the manifest says ", Name(param.type.dtype), ShapeText(param.type.shape()),
                                  ", the files ", Describe(found->second)));
      }
      rewriter.SetParam(role, param.type, found->second);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTwinFiles(const TwinManifest& manifest, const std::string& root) {
  std::set<absl::string_view> with_tensors;
  for (const ManifestTensor& tensor : manifest.tensors) with_tensors.insert(tensor.file);
  std::set<std::string> carried;
  for (const std::string& name : manifest.companions) carried.insert(CompanionInTwin(name));
  for (const ManifestFile& said : manifest.files) {
    if (with_tensors.count(said.name) + carried.count(said.name) == 0) continue;
    const std::string path = absl::StrCat(root, "/", said.name);
    absl::StatusOr<std::unique_ptr<ReadableFile>> file = ReadableFile::Open(path);
    std::string wrong;
    if (!file.ok()) {
      const Diagnostic d = DiagnosticOf(file.status()).value_or(Diagnostic());
      if (ExitCodeOf(file.status()) == ExitCode::kTransient) return file.status();
      wrong = absl::StrCat("the manifest lists it: ", d.message);
    } else if (with_tensors.count(said.name) > 0 && (*file)->size() != said.bytes) {
      wrong = absl::StrCat("it has ", (*file)->size(), " bytes, the manifest says ", said.bytes);
    }
    if (!wrong.empty()) return Error(1803, path, wrong, "fetch or forge this twin again");
  }
  return absl::OkStatus();
}

absl::Status CheckStored(const TwinManifest& manifest, const StoredTwin& stored) {
  std::set<absl::string_view> there;
  for (const SourceTensor& tensor : stored.tensors) {
    const ManifestTensor* said = manifest.Find(tensor.name);
    const std::string place = absl::StrCat(stored.root, "/", tensor.file, ": ", tensor.name);
    if (said == nullptr) return Error(1803, place, "the manifest does not know this tensor");
    if (said->program->dtype() != tensor.source->dtype() ||
        said->program->shape() != tensor.source->shape()) {
      return Error(1803, place,
                   absl::StrCat("the manifest says ", Describe(said->program), ", the file ",
                                Describe(tensor.source)));
    }
    there.insert(tensor.name);
  }
  for (const ManifestTensor& tensor : manifest.tensors) {
    if (there.count(tensor.name) == 0)
      return Error(1803, absl::StrCat(stored.root, "/", tensor.file, ": ", tensor.name),
                   "the manifest names it, but no file has it");
  }
  return absl::OkStatus();
}

absl::StatusOr<Model> OpenTwin(const TwinManifest& manifest, const StoredTwin& stored,
                               const Model* imported) {
  TWIN_RETURN_IF_ERROR(CheckStored(manifest, stored));
  Model model;
  TWIN_ASSIGN_OR_RETURN(model.graph, ParseGraph(manifest.graph));
  TWIN_RETURN_IF_ERROR(Verify(model.graph));
  model.family = manifest.family;
  model.model_type = manifest.model_type;
  model.root = stored.root;
  model.config = StoredJson(stored.root, "config.json");
  model.generation_config = StoredJson(stored.root, "generation_config.json");
  model.sources = stored.tensors;
  std::sort(model.sources.begin(), model.sources.end(),
            [](const SourceTensor& a, const SourceTensor& b) { return a.name < b.name; });
  for (const ManifestFile& file : manifest.files)
    model.files.push_back({.name = file.name, .bytes = file.bytes});
  if (manifest.target == Target::kHf && imported == nullptr) return model;
  TWIN_ASSIGN_OR_RETURN(auto programs, RolePrograms(manifest, model.graph, imported));
  TWIN_RETURN_IF_ERROR(Rebind(programs, model.graph));
  model.reader = stored.reader;
  return model;
}

}  // namespace twinforge
