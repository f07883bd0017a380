#include "reference/stablehlo/composite_attributes.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reference/stablehlo/mlir_body.h"

namespace twinforge {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

std::string Dictionary(const Message& message);

// One value of a field; `at` < 0: it is not repeated.
std::string ValueText(const Message& message, const FieldDescriptor& field, int at) {
  const auto& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const double value =
          at < 0 ? reflection.GetDouble(message, &field) : reflection.GetRepeatedDouble(message, &field, at);
      return absl::StrCat(MlirLiteral(DType::kF64, value), " : f64");
    }
    case FieldDescriptor::CPPTYPE_INT64:
      return absl::StrCat(
          at < 0 ? reflection.GetInt64(message, &field) : reflection.GetRepeatedInt64(message, &field, at),
          " : i64");
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, &field) ? "true" : "false";
    case FieldDescriptor::CPPTYPE_ENUM:
      return absl::StrCat("\"", reflection.GetEnum(message, &field)->name(), "\"");
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return Dictionary(reflection.GetMessage(message, &field));
    default:
      return "unit";
  }
}

std::string Dictionary(const Message& message) {
  const auto& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  std::vector<std::string> rows;
  for (const FieldDescriptor* field : fields) {
    std::string value;
    if (field->is_repeated()) {
      std::vector<std::string> all;
      for (int i = 0; i < reflection.FieldSize(message, field); ++i)
        all.push_back(ValueText(message, *field, i));
      value = absl::StrCat("[", absl::StrJoin(all, ", "), "]");
    } else {
      value = ValueText(message, *field, -1);
    }
    rows.push_back(absl::StrCat(field->name(), " = ", value));
  }
  return absl::StrCat("{", absl::StrJoin(rows, ", "), "}");
}

}  // namespace

std::string CompositeAttributes(const Node& node) {
  switch (node.attrs->attrs_case()) {
    case OpAttrs::kAttention:
      return Dictionary(node.attrs->attention());
    case OpAttrs::kLatentAttention:
      return Dictionary(node.attrs->latent_attention());
    case OpAttrs::kMoe:
      return Dictionary(node.attrs->moe());
    default:
      return "{}";
  }
}

std::string AttributesText(const KeptGroups& groups) {
  return absl::StrCat("{along = \"", groups.along_in ? "in" : "out", "\", keep = ", groups.keep,
                      " : i64, of = ", groups.of, " : i64, stride = ", groups.stride, " : i64}");
}

}  // namespace twinforge
