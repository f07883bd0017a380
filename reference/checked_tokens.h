// The check of tokens that a caller gives to emitted code: each a word that has a place.
#ifndef TWINFORGE_REFERENCE_CHECKED_TOKENS_H_
#define TWINFORGE_REFERENCE_CHECKED_TOKENS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "reference/config_fields.h"
#include "reference/program.h"

namespace twinforge {

// `text` is checked() in JAX or in PyTorch; its bounds become fields of the module's Config.
std::string CheckedTokens(absl::string_view text, const ReferenceProgram& program, ConfigFields& config);

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_CHECKED_TOKENS_H_
