#include "onnx/value_file.h"

#include <filesystem>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "onnx/onnx-data.pb.h"
#include "onnx/onnx-ml.pb.h"
#include "onnx/tensor_data.h"

namespace twinforge {
namespace {

using ::onnx::OptionalProto;
using ::onnx::SequenceProto;
using ::onnx::TensorProto;
using ::onnx::TypeProto;

template <typename Message>
absl::StatusOr<std::shared_ptr<Message>> ParseMessage(absl::string_view bytes, const std::string& place) {
  auto message = std::make_shared<Message>();
  if (message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return message;
  return Error(2001, place, "does not parse as the value that the model declares");
}

absl::StatusOr<OnnxValue> FromTensor(const TensorProto& tensor, std::shared_ptr<const void> owner,
                                     const std::string& place) {
  ExternalFiles none;
  TWIN_ASSIGN_OR_RETURN(OnnxTensor read, TensorFromProto(tensor, std::move(owner), none, place));
  return OnnxValue(std::move(read));
}

absl::StatusOr<OnnxValue> FromSequence(const SequenceProto& proto, const std::shared_ptr<const void>& owner,
                                       const std::string& place) {
  if (proto.map_values_size() > 0 || proto.sparse_tensor_values_size() > 0 ||
      proto.optional_values_size() > 0) {
    return Error(2007, place, "a sequence of maps, sparse tensors or optionals has no meaning here");
  }
  std::vector<OnnxValue> items;
  for (const TensorProto& tensor : proto.tensor_values()) {
    TWIN_ASSIGN_OR_RETURN(OnnxValue item, FromTensor(tensor, owner, place));
    items.push_back(std::move(item));
  }
  for (const SequenceProto& inner : proto.sequence_values()) {
    TWIN_ASSIGN_OR_RETURN(OnnxValue item, FromSequence(inner, owner, place));
    items.push_back(std::move(item));
  }
  return OnnxValue::Sequence(std::move(items));
}

absl::StatusOr<OnnxValue> FromOptional(const OptionalProto& proto, const std::shared_ptr<const void>& owner,
                                       const std::string& place) {
  absl::StatusOr<OnnxValue> item = OnnxValue();
  if (proto.has_tensor_value()) item = FromTensor(proto.tensor_value(), owner, place);
  if (proto.has_sequence_value()) item = FromSequence(proto.sequence_value(), owner, place);
  TWIN_RETURN_IF_ERROR(item.status());
  return item->is_nothing() ? OnnxValue::EmptyOptional() : OnnxValue::Optional(*std::move(item));
}

void ToSequence(const OnnxValue& value, SequenceProto& out) {
  out.set_elem_type(SequenceProto::TENSOR);
  for (const OnnxValue& item : value.items()) {
    if (item.is_tensor()) TensorToProto(item.tensor(), *out.add_tensor_values());
    if (item.is_sequence()) {
      out.set_elem_type(SequenceProto::SEQUENCE);
      ToSequence(item, *out.add_sequence_values());
    }
  }
}

void ToOptional(const OnnxValue& value, OptionalProto& out) {
  out.set_elem_type(OptionalProto::UNDEFINED);
  for (const OnnxValue& item : value.items()) {
    if (item.is_tensor()) {
      out.set_elem_type(OptionalProto::TENSOR);
      TensorToProto(item.tensor(), *out.mutable_tensor_value());
    } else if (item.is_sequence()) {
      out.set_elem_type(OptionalProto::SEQUENCE);
      ToSequence(item, *out.mutable_sequence_value());
    }
  }
}

std::string TensorTypeText(int code, const ::onnx::TensorShapeProto* shape) {
  const std::optional<ElementType> type = ElementTypeFromCode(code);
  std::string text(type ? ElementTypeName(*type) : "?");
  if (shape == nullptr) return text;
  absl::StrAppend(&text, "[");
  for (int i = 0; i < shape->dim_size(); ++i) {
    const auto& dim = shape->dim(i);
    absl::StrAppend(&text, i == 0 ? "" : ", ",
                    dim.has_dim_value()       ? absl::StrCat(dim.dim_value())
                    : dim.dim_param().empty() ? "?"
                                              : dim.dim_param());
  }
  return absl::StrCat(text, "]");
}

}  // namespace

absl::StatusOr<OnnxValue> ParseValue(absl::string_view bytes, const TypeProto& type,
                                     const std::string& place) {
  if (bytes.size() > INT32_MAX) return Error(2001, place, "is larger than one message may be");
  switch (type.value_case()) {
    case TypeProto::kSequenceType: {
      TWIN_ASSIGN_OR_RETURN(const auto message, ParseMessage<SequenceProto>(bytes, place));
      return FromSequence(*message, message, place);
    }
    case TypeProto::kOptionalType: {
      TWIN_ASSIGN_OR_RETURN(const auto message, ParseMessage<OptionalProto>(bytes, place));
      return FromOptional(*message, message, place);
    }
    case TypeProto::kTensorType:
    case TypeProto::VALUE_NOT_SET: {
      TWIN_ASSIGN_OR_RETURN(const auto message, ParseMessage<TensorProto>(bytes, place));
      return FromTensor(*message, message, place);
    }
    case TypeProto::kMapType:
    case TypeProto::kSparseTensorType:
    case TypeProto::kOpaqueType:
      break;
  }
  return Error(2007, place, absl::StrCat("a ", TypeText(type), " has no meaning here"));
}

std::string SerialisedValue(const OnnxValue& value, const std::string& name) {
  switch (value.kind()) {
    case OnnxValue::Kind::kTensor: {
      TensorProto proto;
      TensorToProto(value.tensor(), proto);
      proto.set_name(name);
      return proto.SerializeAsString();
    }
    case OnnxValue::Kind::kSequence: {
      SequenceProto proto;
      ToSequence(value, proto);
      proto.set_name(name);
      return proto.SerializeAsString();
    }
    case OnnxValue::Kind::kNothing:
    case OnnxValue::Kind::kOptional:
      break;
  }
  OptionalProto proto;
  if (value.kind() == OnnxValue::Kind::kOptional) ToOptional(value, proto);
  proto.set_name(name);
  return proto.SerializeAsString();
}

std::string TypeText(const TypeProto& type) {
  switch (type.value_case()) {
    case TypeProto::kTensorType:
      return TensorTypeText(type.tensor_type().elem_type(),
                            type.tensor_type().has_shape() ? &type.tensor_type().shape() : nullptr);
    case TypeProto::kSparseTensorType:
      return absl::StrCat(
          "sparse ", TensorTypeText(type.sparse_tensor_type().elem_type(),
                                    type.sparse_tensor_type().has_shape() ? &type.sparse_tensor_type().shape()
                                                                          : nullptr));
    case TypeProto::kSequenceType:
      return absl::StrCat("sequence of ", TypeText(type.sequence_type().elem_type()));
    case TypeProto::kOptionalType:
      return absl::StrCat("optional ", TypeText(type.optional_type().elem_type()));
    case TypeProto::kMapType:
      return absl::StrCat("map to ", TypeText(type.map_type().value_type()));
    case TypeProto::kOpaqueType:
      return "opaque";
    case TypeProto::VALUE_NOT_SET:
      break;
  }
  return "?";
}

std::string ValueText(const OnnxValue& value) {
  switch (value.kind()) {
    case OnnxValue::Kind::kTensor:
      return absl::StrCat(ElementTypeName(value.tensor().type()), ShapeText(value.tensor().shape()));
    case OnnxValue::Kind::kSequence:
      return absl::StrCat("sequence of ", value.items().size());
    case OnnxValue::Kind::kOptional:
      return value.items().empty() ? "empty optional"
                                   : absl::StrCat("optional ", ValueText(value.items()[0]));
    case OnnxValue::Kind::kNothing:
      break;
  }
  return "nothing";
}

absl::Status CheckDeclared(const OnnxValue& value, const TypeProto& type, const std::string& place) {
  if (type.value_case() != TypeProto::kTensorType || !value.is_tensor()) return absl::OkStatus();
  const auto& declared = type.tensor_type();
  const OnnxTensor& tensor = value.tensor();
  bool fits = declared.elem_type() == 0 || declared.elem_type() == static_cast<int>(tensor.type());
  if (declared.has_shape()) {
    fits = fits && declared.shape().dim_size() == tensor.rank();
    for (int i = 0; fits && i < declared.shape().dim_size(); ++i) {
      const auto& dim = declared.shape().dim(i);
      // 0 and -1 stand for "unknown" in files of some writers.
      fits = !dim.has_dim_value() || dim.dim_value() <= 0 || dim.dim_value() == tensor.dim(i);
    }
  }
  if (fits) return absl::OkStatus();
  return Error(
      2009, place,
      absl::StrCat("is ", ValueText(value), "; the model declares ", JsonQuoted(TypeText(type), 200)));
}

absl::StatusOr<absl::flat_hash_map<std::string, OnnxValue>> ReadInputFolder(const OnnxModel& model,
                                                                            const std::string& folder) {
  constexpr int64_t kLargest = INT32_MAX;
  std::error_code failed;
  if (!std::filesystem::is_directory(folder, failed)) {
    return Error(2009, folder, "is no folder",
                 "an ONNX model takes a folder with input_0.pb, input_1.pb, ...");
  }
  absl::flat_hash_set<int32_t> initial;
  for (const OnnxInitializer& initializer : model.graph.initializers) initial.insert(initializer.slot);
  absl::flat_hash_map<std::string, OnnxValue> values;
  int k = 0;
  for (size_t i = 0; i < model.graph.inputs.size(); ++i) {
    if (initial.count(model.graph.inputs[i]) != 0) continue;
    const auto& input = model.proto->graph().input(static_cast<int>(i));
    const std::string path = absl::StrCat(folder, "/input_", k++, ".pb");
    if (!std::filesystem::exists(path, failed)) {
      return Error(2009, path,
                   absl::StrCat("is missing: input ", JsonQuoted(input.name(), 200), ", ",
                                JsonQuoted(TypeText(input.type()), 200)));
    }
    TWIN_ASSIGN_OR_RETURN(const std::string bytes, ReadTextFile(path, kLargest));
    TWIN_ASSIGN_OR_RETURN(OnnxValue value, ParseValue(bytes, input.type(), path));
    const auto& declared = input.type().tensor_type();
    // Writers give a scalar as one element of one axis.
    if (value.is_tensor() && value.tensor().shape() == Shape{1} && declared.has_shape() &&
        declared.shape().dim_size() == 0) {
      value = OnnxValue(value.tensor().WithShape({}));
    }
    TWIN_RETURN_IF_ERROR(CheckDeclared(value, input.type(), path));
    values[input.name()] = std::move(value);
  }
  const std::string next = absl::StrCat(folder, "/input_", k, ".pb");
  if (std::filesystem::exists(next, failed)) {
    return Error(2009, next, absl::StrCat("is given, and the model takes ", k, " inputs"));
  }
  return values;
}

}  // namespace twinforge
