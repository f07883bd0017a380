// export --to onnx: model.onnx and model.onnx.data, streamed as a forge streams, without a manifest.
#ifndef TWINFORGE_CLI_EXPORT_AS_ONNX_H_
#define TWINFORGE_CLI_EXPORT_AS_ONNX_H_

#include <string>

#include "absl/status/statusor.h"
#include "cli/twin_report.h"
#include "cli/verb.h"

namespace twinforge {

// `flags.to` is "onnx".
absl::StatusOr<Outcome> ExportAsOnnx(const Model& model, const WriteFlags& flags, const std::string& out);

}  // namespace twinforge

#endif  // TWINFORGE_CLI_EXPORT_AS_ONNX_H_
