// Tensors by name, from and to one safetensors file.
#ifndef TWINFORGE_CLI_TENSOR_FILE_H_
#define TWINFORGE_CLI_TENSOR_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "eval/tensor.h"

namespace twinforge {

absl::StatusOr<NamedTensors> ReadTensorFile(const std::string& path);

// Each in its own dtype. The file appears whole, and replaces nothing (TF1608).
absl::Status WriteTensorFile(const NamedTensors& tensors, const std::string& path);

}  // namespace twinforge

#endif  // TWINFORGE_CLI_TENSOR_FILE_H_
