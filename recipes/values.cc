#include "recipes/values.h"

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"

namespace twinforge {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using Places = google::protobuf::TextFormat::ParseInfoTree;

// The names that one may write: FORM_UNSET stands for none.
std::vector<std::string> NamesOf(const EnumDescriptor& choices) {
  std::vector<std::string> names;
  for (int i = 0; i < choices.value_count(); ++i) {
    const std::string& name = choices.value(i)->name();
    if (!absl::EndsWith(name, "UNSET")) names.push_back(name);
  }
  return names;
}

class ValueChecker {
 public:
  explicit ValueChecker(absl::string_view place) : place_(place) {}

  // `path` leads to `message`: "pad_ffn.".
  absl::Status Check(const Message& message, const Places& places, const std::string& path) const {
    const auto& fields = *message.GetDescriptor();
    for (int i = 0; i < fields.field_count(); ++i) {
      TWIN_RETURN_IF_ERROR(CheckField(message, *fields.field(i), places, path));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status CheckField(const Message& message, const FieldDescriptor& field, const Places& places,
                          const std::string& path) const {
    const auto& values = *message.GetReflection();
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE)
      return CheckMessages(message, field, places, path);
    if (field.is_repeated() || places.GetLocation(&field, -1).line < 0) return absl::OkStatus();
    const std::string at = PlaceOf(field, places, path);
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
      return CheckChoice(*field.enum_type(), values.GetEnumValue(message, &field), at);
    }
    if (field.cpp_type() != FieldDescriptor::CPPTYPE_INT64) return absl::OkStatus();
    const bool where = message.GetDescriptor() == Where::descriptor();
    const bool layer = where && absl::EndsWith(field.name(), "_layer");
    const int64_t value = values.GetInt64(message, &field), least = layer ? 0 : 1;
    if (value >= least) return absl::OkStatus();
    return Error(
        where ? 1103 : 1505, at,
        absl::StrCat("is ", value, "; ", layer ? "layers are numbered from 0" : "it must be positive"));
  }

  absl::Status CheckMessages(const Message& message, const FieldDescriptor& field, const Places& places,
                             const std::string& path) const {
    const auto& values = *message.GetReflection();
    const int count =
        field.is_repeated() ? values.FieldSize(message, &field) : values.HasField(message, &field);
    const std::string inside = field.is_repeated() ? "" : absl::StrCat(path, field.name(), ".");
    for (int i = 0; i < count; ++i) {
      const Message& part = field.is_repeated() ? values.GetRepeatedMessage(message, &field, i)
                                                : values.GetMessage(message, &field);
      const Places* nested = places.GetTreeForNested(&field, field.is_repeated() ? i : -1);
      if (nested != nullptr) TWIN_RETURN_IF_ERROR(Check(part, *nested, inside));
    }
    return absl::OkStatus();
  }

  static absl::Status CheckChoice(const EnumDescriptor& choices, int value, absl::string_view at) {
    const std::vector<std::string> names = NamesOf(choices);
    const auto* choice = choices.FindValueByNumber(value);
    if (choice != nullptr && !absl::EndsWith(choice->name(), "UNSET")) return absl::OkStatus();
    return Error(
        1101, at,
        absl::StrCat(choice == nullptr ? absl::StrCat(value) : choice->name(), " is none of its values"),
        absl::StrCat("write ", absl::StrJoin(names, ", ")));
  }

  std::string PlaceOf(const FieldDescriptor& field, const Places& places, absl::string_view path) const {
    const auto at = places.GetLocation(&field, -1);
    return absl::StrCat(place_, ":", at.line + 1, ":", at.column + 1, ": ", path, field.name());
  }

  absl::string_view place_;
};

}  // namespace

absl::Status CheckValues(const Recipe& recipe, const Places& places, absl::string_view place) {
  return ValueChecker(place).Check(recipe, places, "");
}

}  // namespace twinforge
