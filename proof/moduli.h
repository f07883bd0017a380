// What a recipe divides by, as its steps say and as its work on a model shows.
#ifndef TWINFORGE_PROOF_MODULI_H_
#define TWINFORGE_PROOF_MODULI_H_

#include <map>
#include <string>
#include <vector>

#include "proof/steps.h"
#include "recipes/recipe.h"

namespace twinforge {

struct RecipeModuli {
  std::vector<int64_t> all;  // 1, and one per step: the product of its numbers and facts of the chip
  std::map<std::string, int64_t> held;  // by axis: of the steps that changed the axis's extent
};

RecipeModuli ModuliOf(const LoadedRecipe& recipe, const ChipFacts& facts, const StepTrace& trace);

}  // namespace twinforge

#endif  // TWINFORGE_PROOF_MODULI_H_
