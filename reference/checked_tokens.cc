#include "reference/checked_tokens.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace twinforge {

std::string CheckedTokens(absl::string_view text, const ReferenceProgram& program, ConfigFields& config) {
  const std::string words = config.Int("vocab", program.Words(), "words; places beyond them are padding");
  std::string limit;
  if (program.Positions() > 0) {
    limit =
        absl::StrCat("    length = input_ids.shape[1] + further\n    if length > ",
                     config.Int("positions", program.Positions(), "the longest sequence that has a place"),
                     ":\n        raise ValueError(f\"{length} tokens, and the model has places for "
                     "{CONFIG.positions}\")\n");
  }
  return absl::StrReplaceAll(text, {{"$WORDS", words}, {"$LIMIT", limit}});
}

}  // namespace twinforge
