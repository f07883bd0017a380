// Opens what a user names: a checkpoint, a config alone, or a twin that a forge wrote.
#ifndef TWINFORGE_CLI_OPEN_H_
#define TWINFORGE_CLI_OPEN_H_

#include <optional>

#include "absl/status/statusor.h"
#include "cli/verb.h"
#include "exporters/manifest.h"
#include "exporters/twin.h"
#include "ir/model.h"
#include "recipes/run.h"

namespace twinforge {

struct OpenedModel {
  Model model;
  std::string layout;  // how its files hold it: "hub", "grouped", ..., or "twin"
  // For a twin: the graph of the model it was made from, as its manifest tells.
  std::optional<Graph> source_graph;
};

// A twin's graph is read from its manifest, so that every twin opens: in the native layout, or carried by a
// class that no family file describes (granite for llama).
absl::StatusOr<OpenedModel> OpenModelOrTwin(const ModelFlags& flags);

// A checkpoint of a family that is read. TF1804 for a twin that is none: its tensors are in the native
// layout, or another class carries it.
absl::StatusOr<Model> OpenCheckpoint(const std::string& path, const std::string& config);

// Whether `path` is a folder with a twin's manifest.
bool IsTwin(const std::string& path);

// The manifest of a twin's folder. No file that it lists, nor itself, is followed out of the folder (TF1308),
// and those that a reader needs are there (TF1803).
absl::StatusOr<TwinManifest> OpenManifest(const std::string& path);

// A twin's folder: what its manifest says, and what lies there.
struct OpenedTwin {
  TwinManifest manifest;
  StoredTwin stored;
};
absl::StatusOr<OpenedTwin> OpenTwinFolder(const std::string& path);

TwinTarget TargetOf(const RecipeFlags& flags);

}  // namespace twinforge

#endif  // TWINFORGE_CLI_OPEN_H_
