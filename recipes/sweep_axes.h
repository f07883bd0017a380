// Keys of a recipe with several values, and the steps that each choice of values makes.
//
//   step { pad_ffn { } }                                          choice {1}: 1 pad_ffn { multiple: 256 }
//   sweep { key: "pad_ffn.multiple" number: [128, 256] }
//
// A value is checked like the text of a step, and takes the place of what the step says under the same key,
// be that a number or a fact of the chip.
#ifndef TWINFORGE_RECIPES_SWEEP_AXES_H_
#define TWINFORGE_RECIPES_SWEEP_AXES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "recipes/recipe.h"

namespace twinforge {

class Sweep;  // recipe.proto

// TF1113 where a sweep has no key, no values or several kinds of them, an empty range, or a value twice.
absl::StatusOr<SweepAxis> AxisOf(const Sweep& sweep, absl::string_view place);

// "pad_ffn.multiple=128,256", "pad_ffn.multiple=128..512:128", "mesh=tp=4,dp=2" (a mesh has commas of its
// own: one value each). TF1113 otherwise.
absl::StatusOr<SweepAxis> ParseVary(absl::string_view text, absl::string_view place);

// Appends `axis`. TF1113 for a key that is there already.
absl::Status AddAxis(SweepAxis axis, std::vector<SweepAxis>& axes);

// What of the scored step may vary: "batch", "mesh", ... The rest of it is the question itself.
absl::Span<const absl::string_view> StepAxisNames();
bool IsStepAxis(const SweepAxis& axis);

class SweptRecipe {
 public:
  // `axes`: of the recipe's steps and of the scored step, the latter left aside. TF1113 where a key names no
  // step, several, or none of its parameters; whatever CheckRecipe() says of one value, at the axis's place.
  static absl::StatusOr<SweptRecipe> Of(LoadedRecipe recipe, std::vector<SweepAxis> axes,
                                        const TransformContext& context);

  const LoadedRecipe& recipe() const { return recipe_; }
  const std::vector<SweepAxis>& axes() const { return axes_; }  // of steps

  // Steps under value choice[i] of axis i; nullptr for one that is switched off.
  absl::StatusOr<std::vector<std::shared_ptr<const RecipeStep>>> Steps(absl::Span<const size_t> choice) const;

  // How many steps the two choices have alike from the first on.
  size_t SharedSteps(absl::Span<const size_t> a, absl::Span<const size_t> b) const;

 private:
  struct Bound {
    size_t step = 0;                // its position, from 0
    std::vector<std::string> keys;  // under the transform: {"multiple"}, {"where", "last_layer"}; {}: on, off
  };
  absl::StatusOr<Bound> Bind(const SweepAxis& axis) const;
  // Every step of one choice; axis `suspect` is the one whose value nobody has checked yet.
  absl::Status Check(absl::Span<const size_t> choice, size_t suspect, const TransformContext& context) const;

  LoadedRecipe recipe_;
  std::vector<SweepAxis> axes_;
  std::vector<Bound> bound_;
};

}  // namespace twinforge

#endif  // TWINFORGE_RECIPES_SWEEP_AXES_H_
