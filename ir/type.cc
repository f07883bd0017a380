#include "ir/type.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace twinforge {

Shape ParamType::shape() const {
  Shape shape;
  shape.reserve(axes.size());
  for (const ParamAxis& axis : axes) shape.push_back(axis.size);
  return shape;
}

int ParamType::Find(absl::string_view name) const {
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

const ParamAxis& ParamType::Get(absl::string_view name) const {
  const int at = Find(name);
  TWIN_CHECK(at >= 0, absl::StrCat("no axis ", name, " in ", Text(*this)));
  return axes[at];
}

std::string Text(const Type& type) {
  std::string text = absl::StrCat(Name(type.dtype), "[");
  absl::string_view separator = "";
  for (const Axis& axis : type.axes) {
    absl::StrAppend(&text, separator, axis.name);
    separator = ", ";
    const std::string size = axis.size.Text();
    if (size != axis.name) absl::StrAppend(&text, "=", size);
    if (axis.logical != 0) absl::StrAppend(&text, "~", axis.logical);
  }
  return absl::StrCat(text, "]");
}

std::string Text(const ParamType& type) {
  std::string text = absl::StrCat(Name(type.dtype), "[");
  const int rank = static_cast<int>(type.axes.size());
  for (int i = 0; i < rank; ++i) {
    if (type.in > 0 && i == type.lead + type.in) {
      absl::StrAppend(&text, " -> ");
    } else if (type.lead > 0 && i == type.lead) {
      absl::StrAppend(&text, "; ");
    } else if (i > 0) {
      absl::StrAppend(&text, ", ");
    }
    absl::StrAppend(&text, type.axes[i].name, "=", type.axes[i].size);
    if (type.axes[i].padded()) absl::StrAppend(&text, "~", type.axes[i].logical);
    if (type.axes[i].shards != 1) absl::StrAppend(&text, "/", type.axes[i].shards);
  }
  return absl::StrCat(text, "]");
}

}  // namespace twinforge
