#include "cost/pareto.h"

#include <algorithm>
#include <numeric>

namespace twinforge {
namespace {

// At least as good in every place.
bool Covers(const std::vector<double>& a, const std::vector<double>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] > b[i]) return false;
  }
  return true;
}

}  // namespace

std::vector<ParetoMember> ParetoSet(const std::vector<std::vector<double>>& points) {
  // In lexicographic order nothing is beaten by what comes after it.
  std::vector<size_t> order(points.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return points[a] < points[b]; });
  std::vector<ParetoMember> members;
  for (const size_t point : order) {
    const auto covering = std::find_if(members.begin(), members.end(), [&](const ParetoMember& member) {
      return Covers(points[member.point], points[point]);
    });
    if (covering == members.end())
      members.push_back({.point = point});
    else if (points[covering->point] == points[point])
      ++covering->alike;
  }
  std::sort(members.begin(), members.end(),
            [](const ParetoMember& a, const ParetoMember& b) { return a.point < b.point; });
  return members;
}

}  // namespace twinforge
