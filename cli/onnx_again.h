// twinforge export MODEL.onnx --to onnx: the same message again, its weights stored or laid out otherwise.
#ifndef TWINFORGE_CLI_ONNX_AGAIN_H_
#define TWINFORGE_CLI_ONNX_AGAIN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/verb.h"

namespace twinforge {

struct OnnxExportFlags {
  std::vector<std::string> store;  // PATTERN=TYPE
  std::string data_layout;         // "keep", "single" or ""
  bool integrity = false;
};
void AddOnnxExportFlags(CLI::App* verb, OnnxExportFlags& flags);
// Whether any of them is set: they are of ONNX models alone.
bool AnyIsSet(const OnnxExportFlags& flags);

absl::StatusOr<Outcome> ExportOnnxFile(const std::string& path, const OnnxExportFlags& flags,
                                       const std::string& out);

}  // namespace twinforge

#endif  // TWINFORGE_CLI_ONNX_AGAIN_H_
