// What a module of an encoder gives: logits, or hidden states where the model has no head.
#ifndef TWINFORGE_REFERENCE_HEADLESS_H_
#define TWINFORGE_REFERENCE_HEADLESS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace twinforge {

// The fixed text of a module, in JAX or in PyTorch, with its places for the result ($RESULT, $WIDTH, ...)
// filled in.
std::string SayResult(absl::string_view text, bool headless);

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_HEADLESS_H_
