#include "reference/headless.h"

#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"

namespace twinforge {
namespace {

struct ResultWords {
  absl::string_view place, logits, hidden_states;
};

constexpr ResultWords kWords[] = {
    {"$RESULT", "logits", "hidden_states"},
    {"$PAD", "       ", ""},  // before a comment, for names of unequal length
    {"$WIDTH", "vocab", "d_model"},
    {"$SAYS", "the model says of", "the layers make of"},
    {"$PRINTED", "the likeliest word at each place", "the length of each token's hidden state"},
    {"$JAX_OF_TRUNK", "head(params, trunk(params, input_ids, lengths))", "trunk(params, input_ids, lengths)"},
    {"$TORCH_OF_TRUNK", "self.head(self.trunk(input_ids, positions, lengths))",
     "self.trunk(input_ids, positions, lengths)"},
    {"$JAX_PRINT", "\"tokens:\", *jnp.argmax(logits(params, jnp.asarray(prompt)), axis=-1)",
     "\"lengths:\", *jnp.linalg.norm(hidden_states(params, jnp.asarray(prompt)), axis=-1)"},
    {"$TORCH_PRINT", "\"tokens:\", *logits(model, prompt).argmax(dim=-1)",
     "\"lengths:\", *hidden_states(model, prompt).norm(dim=-1)"},
};

}  // namespace

std::string SayResult(absl::string_view text, bool headless) {
  std::vector<std::pair<absl::string_view, absl::string_view>> words;
  for (const ResultWords& row : kWords)
    words.emplace_back(row.place, headless ? row.hidden_states : row.logits);
  return absl::StrReplaceAll(text, words);
}

}  // namespace twinforge
