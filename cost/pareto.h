// Which of many points nothing beats in every respect.
//
//   ParetoSet({{1, 9}, {2, 3}, {2, 4}, {1, 9}})     members 0 and 1; 3 is as good as 0 in all, 2 is beaten by
//   1
#ifndef TWINFORGE_COST_PARETO_H_
#define TWINFORGE_COST_PARETO_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace twinforge {

struct ParetoMember {
  size_t point = 0;   // the first of those that are alike in all respects
  int64_t alike = 0;  // how many others are
};

// Less is better in every place of a point; all points have as many. Ascending by point. Takes time with the
// number of points times that of members.
std::vector<ParetoMember> ParetoSet(const std::vector<std::vector<double>>& points);

}  // namespace twinforge

#endif  // TWINFORGE_COST_PARETO_H_
