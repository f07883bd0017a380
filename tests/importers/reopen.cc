// Opens each checkpoint named and compares what an untouched model would be written as with what it was read
// from: the same tensors, the same config. The outside judge's checkpoints go through it.
//
//   reopen CHECKPOINT...      exit 0: all came back; a line for each
#include <cstdio>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "importers/importer.h"

namespace twinforge {
namespace {

// "" where the model comes back as it was.
std::string Difference(const Model& model) {
  const absl::StatusOr<std::vector<NamedProgram>> files = FilesFromGraph(model.layouts[0], model.graph);
  if (!files.ok()) return Render(files.status());
  std::map<std::string, WeightPtr> programs;
  for (const NamedProgram& file : *files) programs[file.name] = file.program;
  size_t used = 0;
  for (const SourceTensor& source : model.sources) {
    if (!source.ignored.empty()) continue;
    ++used;
    const auto program = programs.find(source.name);
    if (program == programs.end()) return absl::StrCat(source.name, " is not written");
    if (program->second != source.source) return absl::StrCat(source.name, " is not written as it was read");
  }
  if (used != programs.size()) return absl::StrCat(programs.size() - used, " tensors more are written");
  const absl::StatusOr<JsonValue> config = ConfigFromGraph(model.layouts[0], model.graph, model.config);
  if (!config.ok()) return Render(config.status());
  return config->Text() == model.config.Text() ? "" : absl::StrCat("config.json differs: ", config->Text());
}

int ReopenAll(int count, char** paths) {
  int failures = 0;
  for (int i = 0; i < count; ++i) {
    const absl::StatusOr<Model> model = OpenModel(paths[i]);
    const std::string difference = model.ok() ? Difference(*model) : Render(model.status());
    failures += difference.empty() ? 0 : 1;
    const int64_t total = model.ok() ? CountParameters(model->graph).total : 0;
    std::printf("%s %s %lld %s\n", paths[i], model.ok() ? model->layouts[0].name.c_str() : "-",
                static_cast<long long>(total), difference.empty() ? "same" : difference.c_str());
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace twinforge

int main(int argc, char** argv) { return twinforge::ReopenAll(argc - 1, argv + 1); }
