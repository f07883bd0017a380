// What writing a twin and writing a source back have in common: one folder, opened or resumed, streamed into,
// closed with its small files, published; given up where a failure leaves nothing to go on with.
#ifndef TWINFORGE_EXPORTERS_PUBLISH_H_
#define TWINFORGE_EXPORTERS_PUBLISH_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "exporters/exporter.h"
#include "exporters/manifest.h"
#include "exporters/output_dir.h"
#include "exporters/stream.h"
#include "weights/read.h"

namespace twinforge {

struct PublishRequest {
  const ExportPlan& plan;
  const ExportOptions& options;
  std::string root;            // the folder that is read; `out` may not lie in it (TF1611)
  const TensorReader& reader;  // one of its files that changes makes a journal worthless
  std::string out;
  // Writes what comes after tensors and small files; `small` are those, as written. Null: nothing.
  std::function<absl::Status(const StreamResult& streamed, std::vector<ManifestFile> small, OutputDir& dir)>
      close;
};

absl::StatusOr<ExportResult> WriteAndPublish(const PublishRequest& request,
                                             const std::function<void(const Progress&)>& progress);

}  // namespace twinforge

#endif  // TWINFORGE_EXPORTERS_PUBLISH_H_
