#include "reference/functions.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace twinforge {

std::string FunctionSet::Define(absl::string_view name, absl::string_view text) {
  int number = 1;
  for (const Function& function : functions_) {
    if (function.text == text) return function.name;
  }
  std::string own(name);
  for (size_t i = 0; i < functions_.size(); ++i) {
    if (functions_[i].name != own) continue;
    own = absl::StrCat(name, "_", ++number);
    i = static_cast<size_t>(-1);  // from the beginning: the new name may be taken too
  }
  functions_.push_back({own, std::string(text)});
  return own;
}

std::string FunctionSet::Text() const {
  std::string all;
  for (const Function& function : functions_)
    absl::StrAppend(&all, "\n\n", absl::StrReplaceAll(function.text, {{"$", function.name}}));
  return all;
}

}  // namespace twinforge
