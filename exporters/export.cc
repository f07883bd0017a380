#include <utility>

#include "base/diagnostic.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "exporters/exporter.h"
#include "exporters/manifest.h"
#include "exporters/model_card.h"
#include "exporters/publish.h"
#include "ir/verify.h"

namespace twinforge {

absl::StatusOr<ExportResult> Export(const Model& model, const ExportPlan& plan, const Provenance& provenance,
                                    const ExportOptions& options, const std::string& out,
                                    const std::function<void(const Progress&)>& progress) {
  if (!model.has_bytes()) {
    return Error(1612, "", "a model from a config alone has no bytes to write",
                 "name the checkpoint's folder");
  }
  TWIN_RETURN_IF_ERROR(Verify(model.graph));
  PublishRequest request{
      .plan = plan, .options = options, .root = model.root, .reader = *model.reader, .out = out};
  request.close = [&](const StreamResult& streamed, std::vector<ManifestFile> small, OutputDir& dir) {
    std::string card = ModelCard(model, model.graph, plan, provenance);
    TWIN_RETURN_IF_ERROR(dir.WriteSmall("README.md", card));
    small.push_back({"README.md", static_cast<int64_t>(card.size()), Sha256Hex(card)});
    TWIN_RETURN_IF_ERROR(
        WriteManifest({model, plan, provenance, streamed.files, small},
                      [&](absl::string_view text) { return dir.Append(kManifestName, text); }));
    return dir.SyncSmall(kManifestName);
  };
  return WriteAndPublish(request, progress);
}

}  // namespace twinforge
