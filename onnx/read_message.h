// A model's message without its weights: large raw data stays in the file, and the message knows where.
//
//   file      ModelProto > graph > initializer > raw_data, 2 GB at byte 917
//   message   the same initializer without raw_data; files.LeftInFile(it) is {917, 2 GB}
//
// The file is walked by the heads of its fields. What is small is handed to protobuf in runs of neighbours,
// so that whatever protobuf makes of a file is made here too (merged fields, unknown ones, the last of
// several); only a large submessage that may hold tensors is entered. A field of raw data from `view_from`
// bytes on is noted and not read. So the message, one run and the largest single field are all that is ever
// held, and a file may be larger than the 2 GiB that protobuf reads at once.
#ifndef TWINFORGE_ONNX_READ_MESSAGE_H_
#define TWINFORGE_ONNX_READ_MESSAGE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "onnx/external_files.h"
#include "onnx/model_bytes.h"

namespace onnx {
class ModelProto;
}

namespace twinforge {

// Raw data of fewer bytes lies in the message. (The format's own tools move tensors into files from here on.)
inline constexpr int64_t kViewFrom = 1024;

// Parses `bytes` into `out`; what is left there is noted in `files`, which keeps them. TF2001.
absl::Status ReadMessage(std::shared_ptr<const ModelBytes> bytes, int64_t view_from, ::onnx::ModelProto& out,
                         ExternalFiles& files);

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_READ_MESSAGE_H_
