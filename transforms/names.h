// Whether the names that a step's parameters hold mean something in a model. A misspelt one would match
// nothing, and the step would look as if all were native already.
//
//   orient_weights { in_out: "o|dwon" }    in_out: "dwon" is no parameter: did you mean "down"?
#ifndef TWINFORGE_TRANSFORMS_NAMES_H_
#define TWINFORGE_TRANSFORMS_NAMES_H_

#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "ir/graph.h"
#include "re2/re2.h"

namespace twinforge {

// What parameters are called: in `graph` (last parts of roles and of bundles' roles) and in any op (slots).
std::set<std::string> ParameterNames(const Graph& graph);
// What axes of parameters are called, likewise.
std::set<std::string> AxisNames(const Graph& graph);

// TF1105 where `pattern`, or one of the words between its bars, fits none of `known`. `field` is
// "orient_weights.in_out".
absl::Status CheckPatternNames(absl::string_view field, const RE2& pattern,
                               const std::set<std::string>& known);
// TF1105 where `name` is none of `known`.
absl::Status CheckName(absl::string_view field, const std::string& name, const std::set<std::string>& known);

}  // namespace twinforge

#endif  // TWINFORGE_TRANSFORMS_NAMES_H_
