// Whether data files are what the model says: the `checksum` of external data is the SHA-1 of the whole file.
#ifndef TWINFORGE_ONNX_CHECKSUM_H_
#define TWINFORGE_ONNX_CHECKSUM_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "onnx/read.h"

namespace twinforge {

// Reads every data file for which a tensor names a checksum, once, from end to end; how many there were.
// TF2021 where one differs, TF2004 where two tensors name different ones. REQUIRES: `message` was checked.
absl::StatusOr<int64_t> CheckChecksums(const OnnxMessage& message);

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_CHECKSUM_H_
