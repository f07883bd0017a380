// What an evaluation would take, from types alone: asked before a long one begins.
//
// Values count while somebody still uses them, parameters not: they are bounded one by one (EvalOptions).
#ifndef TWINFORGE_EVAL_ESTIMATE_H_
#define TWINFORGE_EVAL_ESTIMATE_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "ir/graph.h"

namespace twinforge {

struct EvaluationCost {
  double elements = 0;       // of all values that are alive at once, at most; 8 bytes each
  double multiply_adds = 0;  // of products; an element of any other value counts as one
};

// Of one call without state, its symbols bound as `symbols` says ("batch", "seq"). TF1901 where an extent has
// no size.
absl::StatusOr<EvaluationCost> CostOfEvaluation(const Graph& graph,
                                                const std::map<std::string, int64_t>& symbols);

// TF1902 where a call would take more than about a minute and a half or a gigabyte (measured at 0.8e9
// multiply-adds a second).
inline constexpr double kMostLiveElements = 1 << 27;
inline constexpr double kMostMultiplyAdds = 68719476736.0;  // 2^36
absl::Status CheckAffordable(const EvaluationCost& cost);

}  // namespace twinforge

#endif  // TWINFORGE_EVAL_ESTIMATE_H_
