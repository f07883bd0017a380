// Modules of models without a head: hidden states in the place of logits.
#ifndef TWINFORGE_REFERENCE_HEADLESS_H_
#define TWINFORGE_REFERENCE_HEADLESS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace twinforge {

// The fixed text of an encoder's module, in JAX or in PyTorch, with hidden_states() instead of logits().
std::string SayHiddenStates(absl::string_view text);

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_HEADLESS_H_
