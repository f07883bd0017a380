// Values in files of their own: `input_K.pb`, `output_K.pb`, as the standard's tests hold them.
//
// Such a file is a bare TensorProto, SequenceProto or OptionalProto; which one, only the model's declared
// type says.
#ifndef TWINFORGE_ONNX_VALUE_FILE_H_
#define TWINFORGE_ONNX_VALUE_FILE_H_

#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "onnx/model.h"
#include "onnx/value.h"

namespace onnx {
class TypeProto;
class ValueInfoProto;
}  // namespace onnx

namespace twinforge {

// TF2001 where the bytes are no such message, TF2009 where they are of another type than `type`.
absl::StatusOr<OnnxValue> ParseValue(absl::string_view bytes, const ::onnx::TypeProto& type,
                                     const std::string& place);
std::string SerialisedValue(const OnnxValue& value, const std::string& name);

// "FLOAT[2, batch]", "sequence of INT64[?]".
std::string TypeText(const ::onnx::TypeProto& type);
std::string ValueText(const OnnxValue& value);

// Whether a value can stand where `type` is declared: kind, element type, rank and the extents that are
// known.
absl::Status CheckDeclared(const OnnxValue& value, const ::onnx::TypeProto& type, const std::string& place);

// `input_K.pb` in `folder` for each graph input that has no initializer, K counting those from 0. TF2009
// where a file is missing, does not fit what is declared, or belongs to no input. One element where a scalar
// is declared is one.
absl::StatusOr<absl::flat_hash_map<std::string, OnnxValue>> ReadInputFolder(const OnnxModel& model,
                                                                            const std::string& folder);

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_VALUE_FILE_H_
