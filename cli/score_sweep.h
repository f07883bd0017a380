// score --sweep: every combination of a recipe's swept keys and of the step's, and those that nothing beats.
#ifndef TWINFORGE_CLI_SCORE_SWEEP_H_
#define TWINFORGE_CLI_SCORE_SWEEP_H_

#include <string>
#include <vector>

#include "cli/score_request.h"
#include "cli/verb.h"
#include "ir/model.h"
#include "recipes/sweep.h"

namespace twinforge {

struct SweepFlags {
  bool sweep = false;
  std::vector<std::string> vary;  // "batch=8,16"; the same key may be given again
  int threads = 1;
  bool asked() const { return sweep || !vary.empty(); }
};

// `step`: what of the step does not vary. TF1003 where nothing varies, or a step of serving is asked; TF1113
// for a bad axis.
absl::StatusOr<Outcome> ScoreSweep(const Model& model, const ScoreFlags& step, const RecipeFlags& recipe,
                                   const std::string& against, const SweepFlags& flags);

}  // namespace twinforge

#endif  // TWINFORGE_CLI_SCORE_SWEEP_H_
