// An ONNX file, read as hostile: whatever its bytes are, it ends in a checked model or one diagnostic.
//
//   TF2001  not a protobuf of the schema, or cut short
//   TF2002  names: used before anything makes them, made twice, in a circle; operator sets; no graph
//   TF2003  a tensor's type, shape and data disagree (tensor_data.h)
//   TF2004  external data out of reach (external_files.h)
//   TF2005  subgraphs, functions or types nested too deeply; functions that call themselves
//   TF2006  a version of the format that is newer than this reader
//
// Large tensors stay in the file (read_message.h): what is held is the message without them, whatever the
// file's size.
#ifndef TWINFORGE_ONNX_READ_H_
#define TWINFORGE_ONNX_READ_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "onnx/model.h"
#include "onnx/read_message.h"

namespace twinforge {

inline constexpr int kDeepestNesting = 200;

// A message that nobody has checked, and that may be changed. Tensors keep their addresses while it is.
struct OnnxMessage {
  std::string path;
  std::shared_ptr<::onnx::ModelProto> proto;
  std::shared_ptr<ExternalFiles> files;
};
absl::StatusOr<OnnxMessage> ReadOnnxMessage(const std::string& path);
// The model that `message` is, which it shares: good until the message is changed.
absl::StatusOr<std::unique_ptr<OnnxModel>> CheckedOnnxModel(const OnnxMessage& message);

absl::StatusOr<std::unique_ptr<OnnxModel>> ReadOnnxModel(const std::string& path);
// From memory, which is copied: external data has no roots and is refused. `name` is for diagnostics. Raw
// data of `view_from` bytes and more is read when asked for, as from a file.
absl::StatusOr<std::unique_ptr<OnnxModel>> ParseOnnxModel(absl::string_view bytes, const std::string& name,
                                                          int64_t view_from = kViewFrom);

// Whether `path` is called as ONNX files are.
bool IsOnnxPath(absl::string_view path);

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_READ_H_
