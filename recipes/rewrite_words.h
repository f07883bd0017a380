// What the TPU compiler says of each rewrite that a recipe made.
#ifndef TWINFORGE_RECIPES_REWRITE_WORDS_H_
#define TWINFORGE_RECIPES_REWRITE_WORDS_H_

#include <optional>
#include <vector>

#include "recipes/advise.h"

namespace twinforge {

// One or two rows (layer, head) for each step of `report` that rewrote a place; unknown, with the reason, on
// a mesh whose layers nobody compiled.
std::vector<RewriteWord> WordsOf(const RecipeReport& report, const Graph& source, const Graph& twin,
                                 const AdviceRequest& request);

// As Advice::compiler.
std::optional<int> SignOfWords(const std::vector<RewriteWord>& words);

// "2 pad_vocab" -> "pad_vocab".
std::string TransformOf(const StepReport& step);

}  // namespace twinforge

#endif  // TWINFORGE_RECIPES_REWRITE_WORDS_H_
