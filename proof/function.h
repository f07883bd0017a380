// The algebra's argument: source and twin compute one function.
//
//   the graphs themselves, where they are small enough to be computed as they are
//   else a shrunk model on which the recipe does what it did to the real one (shrink.h); that the real twin's
//   graph is what the recipe makes of the real source is shown by running it again (proof/recipe_again.h)
//
// Steps that change the function on purpose (keep_n_of_m drops weights, merge_lora adds some) are left out on
// the twin's side and named: the argument is then about the other steps.
#ifndef TWINFORGE_PROOF_FUNCTION_H_
#define TWINFORGE_PROOF_FUNCTION_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "exporters/prove.h"
#include "ir/model.h"
#include "proof/locate.h"
#include "proof/steps.h"
#include "recipes/plan.h"

namespace twinforge {

// Parameters of a graph that is computed as it is.
inline constexpr int64_t kComputedWhole = 4'000'000;
// Of a shrunk one; beyond it the argument is not made.
inline constexpr int64_t kComputedShrunk = 64'000'000;

struct FunctionProof {
  Verdict verdict = Verdict::kIncomplete;
  std::string on;                     // "the graphs themselves", "a shrunk model: 2 of 32 layers; ..."
  std::vector<std::string> left_out;  // steps that change the function on purpose
  std::string reason;                 // why not proven
  int64_t values = 0;                 // compared
  double largest = 0;                 // difference, as a part of the largest value
  double tolerance = 0;
  std::optional<FaultPlace> fault;
  std::string smallest_case;  // both graphs as text, where refuted
  Graph computed_source, computed_twin;
};

// Two graphs and the steps between them. trace.graphs[0] is the source; `twin` is what is to be shown equal,
// which is or should be trace.graphs.back().
FunctionProof CompareAlongTrace(const StepTrace& trace, const Graph& twin, uint64_t seed);

struct FunctionRequest {
  const Model& source;
  const Graph& twin;
  const LoadedRecipe& recipe;
  const RecipeOptions& options;
  const RecipeReport& report;  // of the recipe on the source
  int64_t computed_whole = kComputedWhole;
};
FunctionProof ProveFunction(const FunctionRequest& request);

}  // namespace twinforge

#endif  // TWINFORGE_PROOF_FUNCTION_H_
