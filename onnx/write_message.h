// A model's message as the bytes of a file, with raw data that the message does not hold spliced in.
//
//   message   initializer {dims, data_type, name}          payloads[it] = {file, 917, 2 GB}
//   file      initializer {dims, data_type, name, raw_data}   as protobuf would write it
//
// protobuf writes the message as it is (known fields by number, unknown ones behind them); then the lengths
// of all messages around a payload are made anew. Where nothing was changed, the bytes are those of
// protobuf's deterministic form of the file that was read, and that form read again gives itself.
#ifndef TWINFORGE_ONNX_WRITE_MESSAGE_H_
#define TWINFORGE_ONNX_WRITE_MESSAGE_H_

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "onnx/new_file.h"

namespace onnx {
class ModelProto;
class TensorProto;
}  // namespace onnx

namespace twinforge {

// Raw data of tensors, each a stretch whose offset is not said yet. REQUIRES of each such tensor: its message
// has no raw_data.
using Payloads = absl::flat_hash_map<const ::onnx::TensorProto*, Stretch>;

// TF2020 where the message without payloads has more than 2 GiB.
absl::StatusOr<NewFile> MessageFile(const ::onnx::ModelProto& message, Payloads payloads,
                                    const std::string& name);

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_WRITE_MESSAGE_H_
