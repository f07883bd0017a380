#include "reference/headless.h"

#include "absl/strings/str_replace.h"

namespace twinforge {

std::string SayHiddenStates(absl::string_view text) {
  return absl::StrReplaceAll(
      text,
      {{"logits(params, input_ids)                        # [batch, seq, vocab]",
        "hidden_states(params, input_ids)                 # [batch, seq, d_model]"},
       {"logits(params, input_ids, lengths)               #",
        "hidden_states(params, input_ids, lengths)        #"},
       {"logits(model, input_ids)                         # [batch, seq, vocab]",
        "hidden_states(model, input_ids)                  # [batch, seq, d_model]"},
       {"logits(model, input_ids, lengths)                #",
        "hidden_states(model, input_ids, lengths)         #"},
       {"def logits(", "def hidden_states("},
       {"all_logits(", "all_hidden_states("},
       {"What logits() gives", "What hidden_states() gives"},
       {"What the model says of each token of input_ids [batch, seq]: [batch, seq, vocab].",
        "What the layers make of each token of input_ids [batch, seq]: [batch, seq, d_model]."},
       {"says the likeliest word at each place", "says the length of each token's hidden state"},
       {"head(params, trunk(params, input_ids, lengths))", "trunk(params, input_ids, lengths)"},
       {"self.head(self.trunk(input_ids, positions, lengths))", "self.trunk(input_ids, positions, lengths)"},
       {"\"tokens:\", *jnp.argmax(logits(params, jnp.asarray(prompt)), axis=-1)",
        "\"lengths:\", *jnp.linalg.norm(hidden_states(params, jnp.asarray(prompt)), axis=-1)"},
       {"\"tokens:\", *logits(model, prompt).argmax(dim=-1)",
        "\"lengths:\", *hidden_states(model, prompt).norm(dim=-1)"}});
}

}  // namespace twinforge
