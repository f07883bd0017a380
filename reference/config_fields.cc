#include "reference/config_fields.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reference/python.h"

namespace twinforge {

std::string ConfigFields::Use(absl::string_view name, absl::string_view type, std::string value,
                              absl::string_view meaning) {
  for (int number = 1;; ++number) {
    std::string own = number == 1 ? std::string(name) : absl::StrCat(name, "_", number);
    const Field* found = nullptr;
    for (const Field& field : fields_) {
      if (field.name == own) found = &field;
    }
    if (found != nullptr && found->value != value) continue;
    if (found == nullptr) fields_.push_back({own, std::string(type), std::move(value), std::string(meaning)});
    return absl::StrCat("CONFIG.", own);
  }
}

std::string ConfigFields::Float(absl::string_view name, double value, absl::string_view meaning) {
  return Use(name, "float", PyFloat(value), meaning);
}

std::string ConfigFields::Int(absl::string_view name, int64_t value, absl::string_view meaning) {
  return Use(name, "int", absl::StrCat(value), meaning);
}

std::string ConfigFields::String(absl::string_view name, absl::string_view value, absl::string_view meaning) {
  return Use(name, "str", PyString(value), meaning);
}

std::string ConfigFields::Floats(absl::string_view name, absl::Span<const double> values,
                                 absl::string_view meaning) {
  const std::string list =
      absl::StrJoin(values, ", ", [](std::string* out, double value) { out->append(PyFloat(value)); });
  return Use(name, "tuple[float, ...]", absl::StrCat("(", list, values.size() == 1 ? ",)" : ")"), meaning);
}

std::string ConfigFields::Text() const {
  std::string text = "@dataclass(frozen=True)\nclass Config:\n";
  for (const Field& field : fields_) {
    std::string line = absl::StrCat("    ", field.name, ": ", field.type, " = ", field.value);
    if (!field.meaning.empty()) absl::StrAppend(&line, "  # ", field.meaning);
    absl::StrAppend(&text, line, "\n");
  }
  if (fields_.empty()) text += "    pass\n";
  return text + "\n\nCONFIG = Config()\n";
}

}  // namespace twinforge
