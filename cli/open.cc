#include "cli/open.h"

#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "importers/checkpoint.h"
#include "importers/checkpoint_folder.h"
#include "importers/importer.h"
#include "ir/text.h"
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

absl::StatusOr<OpenedTwin> OpenTwinFolder(const std::string& path) {
  OpenedTwin twin;
  TWIN_ASSIGN_OR_RETURN(twin.manifest, OpenManifest(path));
  TWIN_ASSIGN_OR_RETURN(std::shared_ptr<const Checkpoint> checkpoint, Checkpoint::Open(path));
  twin.stored.root = path;
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

absl::StatusOr<OpenedModel> OpenModelOrTwin(const ModelFlags& flags) {
  OpenedModel opened;
  if (!flags.from_config.empty() || flags.path.empty() || !IsTwin(flags.path)) {
    TWIN_ASSIGN_OR_RETURN(opened.model, OpenFlags(flags));
    return opened;
  }
  TWIN_ASSIGN_OR_RETURN(OpenedTwin twin, OpenTwinFolder(flags.path));
  Model imported;
  const bool hf = twin.manifest.target == Target::kHf;
  if (hf) {
    TWIN_ASSIGN_OR_RETURN(imported, OpenModel(flags.path, flags.config));
  }
  TWIN_ASSIGN_OR_RETURN(opened.model, OpenTwin(twin.manifest, twin.stored, hf ? &imported : nullptr));
  if (!twin.manifest.provenance.source_graph.empty()) {
    TWIN_ASSIGN_OR_RETURN(opened.source_graph, ParseGraph(twin.manifest.provenance.source_graph));
  }
  return opened;
}

TwinTarget TargetOf(const RecipeFlags& flags) {
  TwinTarget target;
  target.chip = flags.chip;
  target.shards = flags.shards;
  target.kernel = flags.kernel;
  target.skip.insert(flags.skip.begin(), flags.skip.end());
  return target;
}

}  // namespace twinforge
