// Which files make up a checkpoint, found before any of them is opened.
//
// A folder has one file, or shards with an index; everything else about the choice is
// here: what is preferred, what is ambiguous, which names and links are followed.
#ifndef TWINFORGE_IMPORTERS_CHECKPOINT_FOLDER_H_
#define TWINFORGE_IMPORTERS_CHECKPOINT_FOLDER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace twinforge {

// One entry of weight_map: `file` is an index into ShardIndex::files.
struct IndexedTensor {
  std::string name;
  int32_t file = 0;
};

// model.safetensors.index.json, its names checked.
struct ShardIndex {
  std::vector<std::string> files;      // ascending, each once; plain names, no folder
  std::vector<IndexedTensor> tensors;  // ascending by name
  std::optional<int64_t> total_size;   // metadata.total_size, where it is a number
};

// `place` names the index in diagnostics.
absl::StatusOr<ShardIndex> ParseShardIndex(absl::string_view text, absl::string_view place);

// What to open. Paths have no symbolic link left at their end.
struct CheckpointFolder {
  struct File {
    std::string name;  // in the folder
    std::string path;
  };
  std::string root;
  std::vector<File> files;          // ascending by name
  std::optional<ShardIndex> index;  // files match, one to one
  std::string index_name;
  std::vector<std::string> warnings;
};

// `path` is a folder, a .safetensors file or an index file.
absl::StatusOr<CheckpointFolder> FindCheckpoint(const std::string& path);

// Whether the file `name` of the folder `root` may be followed: it is no symbolic link, or one that stays in
// the folder or in the blobs of the same Hub repository (TF1308 otherwise). So with folders on the way to it.
absl::Status CheckInside(const std::string& root, const std::string& name);
// The same, and nothing to say of a file that is not there.
absl::Status CheckInsideIfThere(const std::string& root, const std::string& name);

}  // namespace twinforge

#endif  // TWINFORGE_IMPORTERS_CHECKPOINT_FOLDER_H_
