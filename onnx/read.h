// An ONNX file, read as hostile: whatever its bytes are, it ends in a checked model or one diagnostic.
//
//   TF2001  not a protobuf of the schema, or cut short
//   TF2002  names: used before anything makes them, made twice, in a circle; operator sets; a graph without
//   parts TF2003  a tensor's type, shape and data disagree (tensor_data.h) TF2004  external data out of reach
//   (external_files.h) TF2005  subgraphs, functions or types nested more deeply than kDeepestNesting;
//   functions that call themselves TF2006  a version of the format that is newer than this reader
//
// While it is parsed, the file's bytes and the message are held, twice its size; then the message alone.
#ifndef TWINFORGE_ONNX_READ_H_
#define TWINFORGE_ONNX_READ_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "onnx/model.h"

namespace twinforge {

inline constexpr int kDeepestNesting = 200;

absl::StatusOr<std::unique_ptr<OnnxModel>> ReadOnnxModel(const std::string& path);
// From memory: external data has no roots and is refused. `name` is for diagnostics.
absl::StatusOr<std::unique_ptr<OnnxModel>> ParseOnnxModel(absl::string_view bytes, const std::string& name);

// Whether `path` is called as ONNX files are.
bool IsOnnxPath(absl::string_view path);

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_READ_H_
