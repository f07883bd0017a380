// The functions of an emitted module: each defined once, before those that call it.
#ifndef TWINFORGE_REFERENCE_FUNCTIONS_H_
#define TWINFORGE_REFERENCE_FUNCTIONS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace twinforge {

class FunctionSet {
 public:
  // The name under which the function `text` is to be called. `text` says `$` where its own name stands: "def
  // $(x):\n    return x\n". A text that is already there keeps its name, whatever `name` is; another function
  // of that name makes it "name_2".
  std::string Define(absl::string_view name, absl::string_view text);

  // All of them, two empty lines before each.
  std::string Text() const;

 private:
  struct Function {
    std::string name, text;
  };
  std::vector<Function> functions_;
};

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_FUNCTIONS_H_
