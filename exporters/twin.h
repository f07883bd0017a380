// A twin read back: as a model with bytes, or as the source it was made from.
//
// Opening a checkpoint's files is an importer's affair and exporters do not know importers,
// so the caller opens the twin's folder and hands over what it found there.
#ifndef TWINFORGE_EXPORTERS_TWIN_H_
#define TWINFORGE_EXPORTERS_TWIN_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "exporters/exporter.h"
#include "exporters/manifest.h"
#include "ir/model.h"

namespace twinforge {

// The tensors that lie in a twin's folder, as a checkpoint.
struct StoredTwin {
  std::string root;
  std::vector<SourceTensor> tensors;  // any order
  std::shared_ptr<const TensorReader> reader;
};

// Every file of tensors that the manifest lists lies in `root` in the length that it says, and every file
// that was carried along lies there (TF1803). What is in them is for others to check.
absl::Status CheckTwinFiles(const TwinManifest& manifest, const std::string& root);

// Names, dtypes and shapes agree with the manifest, and nothing is there too much (TF1803).
absl::Status CheckStored(const TwinManifest& manifest, const StoredTwin& stored);

// The twin as a model: the manifest's graph, whose parameters read the twin's own tensors.
// `imported` is the twin's folder opened as a checkpoint of its family, needed for --to hf
// (there the family's layout says where roles lie) and ignored for --to twin; null leaves an
// hf twin's model without bytes. Layouts are left empty: a twin is not written again.
absl::StatusOr<Model> OpenTwin(const TwinManifest& manifest, const StoredTwin& stored, const Model* imported);

// Writes the source's tensors, in the source's own files and layout, from the twin's.
// Files all of whose tensors only moved come back bit for bit, header included.
// Sources whose fate is kPartial or kConsumed are refused (TF1802); tensors that the model did not use
// (rotary tables) are not in the twin, and plan.warnings says which are missing.
absl::StatusOr<ExportPlan> PlanUnforge(const TwinManifest& manifest, const StoredTwin& stored,
                                       const ExportOptions& options);
absl::StatusOr<ExportResult> Unforge(const StoredTwin& stored, const ExportPlan& plan,
                                     const ExportOptions& options, const std::string& out,
                                     const std::function<void(const Progress&)>& progress);

}  // namespace twinforge

#endif  // TWINFORGE_EXPORTERS_TWIN_H_
