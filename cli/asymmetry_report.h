// What `score --against` and `advise --against` print of an asymmetry.
#ifndef TWINFORGE_CLI_ASYMMETRY_REPORT_H_
#define TWINFORGE_CLI_ASYMMETRY_REPORT_H_

#include <string>

#include "cli/verb.h"
#include "cost/asymmetry.h"

namespace twinforge {

Json AsymmetryJson(const Asymmetry& asymmetry);
// "asymmetric advantage of v6e over h100_sxm: ..." in one line.
std::string AsymmetryLine(const Asymmetry& asymmetry);
// The line, a table of rungs, constants, what would overturn it, the other chip's dense and sparse rates.
std::string AsymmetryText(const Asymmetry& asymmetry);

}  // namespace twinforge

#endif  // TWINFORGE_CLI_ASYMMETRY_REPORT_H_
