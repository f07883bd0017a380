// Small models and recipes run on them step by step, for the tests of proofs.
#ifndef TWINFORGE_TESTS_PROOF_TRACES_H_
#define TWINFORGE_TESTS_PROOF_TRACES_H_

#include <functional>
#include <string>

#include "ir/model.h"
#include "proof/steps.h"
#include "recipes/recipe.h"

namespace twinforge {

// The family's small config, imported; its stored tensors are made up.
Model SmallFamilyModel(const std::string& name);

// A recipe of these steps that asks for no fidelity.
LoadedRecipe RecipeOf(const std::string& steps);

// The recipe's work; after each step `strike` may damage the graph, and the next step goes on from there.
// Steps that have no place on this model do nothing.
StepTrace TraceWith(const LoadedRecipe& recipe, const RecipeOptions& options, Model model,
                    const std::function<void(size_t step, Graph&)>& strike);

}  // namespace twinforge

#endif  // TWINFORGE_TESTS_PROOF_TRACES_H_
