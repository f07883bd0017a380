// What `score --sweep` prints, as JSON and for people.
#ifndef TWINFORGE_CLI_SWEEP_REPORT_H_
#define TWINFORGE_CLI_SWEEP_REPORT_H_

#include <string>

#include "cli/score_request.h"
#include "cli/verb.h"
#include "recipes/sweep.h"

namespace twinforge {

Json SweepJson(const std::string& recipe, const ScoreFlags& step, const SweepQuestion& question,
               const SweepReport& report);
// The Pareto set as a table; refused variants by reason, the most frequent first.
std::string SweepText(const std::string& recipe, const ScoreFlags& step, const SweepQuestion& question,
                      const SweepReport& report);

}  // namespace twinforge

#endif  // TWINFORGE_CLI_SWEEP_REPORT_H_
