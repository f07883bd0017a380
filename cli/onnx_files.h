// What verbs do where MODEL is an ONNX file.
#ifndef TWINFORGE_CLI_ONNX_FILES_H_
#define TWINFORGE_CLI_ONNX_FILES_H_

#include <string>

#include "absl/status/statusor.h"
#include "cli/verb.h"

namespace twinforge {

absl::StatusOr<Outcome> InspectOnnx(const std::string& path);

// Reads input_K.pb in `inputs`, writes output_K.pb into `out`, a folder that it makes (TF1608 where it
// exists).
absl::StatusOr<Outcome> EvalOnnx(const std::string& path, const std::string& inputs, const std::string& out);

}  // namespace twinforge

#endif  // TWINFORGE_CLI_ONNX_FILES_H_
