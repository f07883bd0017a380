#include "cost/pareto.h"

#include <algorithm>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace twinforge {
namespace {

using Points = std::vector<std::vector<double>>;

// By the definition: no other point is at least as good in all and better in one.
bool IsBeaten(const Points& points, size_t at) {
  for (const std::vector<double>& other : points) {
    bool covers = true, better = false;
    for (size_t i = 0; i < other.size(); ++i) {
      covers &= other[i] <= points[at][i];
      better |= other[i] < points[at][i];
    }
    if (covers && better) return true;
  }
  return false;
}

TEST(ParetoSet, OfTheHeader) {
  const std::vector<ParetoMember> members = ParetoSet({{1, 9}, {2, 3}, {2, 4}, {1, 9}});
  ASSERT_EQ(members.size(), 2u);
  EXPECT_EQ(members[0].point, 0u);
  EXPECT_EQ(members[0].alike, 1);
  EXPECT_EQ(members[1].point, 1u);
  EXPECT_EQ(members[1].alike, 0);
  EXPECT_TRUE(ParetoSet({}).empty());
}

TEST(ParetoSet, IsWhatNothingBeats) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    Points points(1 + random() % 60, std::vector<double>(1 + random() % 4));
    for (std::vector<double>& point : points) {
      point.resize(points[0].size());
      for (double& value : point) value = static_cast<double>(random() % 5) - 2;
    }
    std::vector<size_t> expected;
    std::vector<int64_t> alike;
    for (size_t i = 0; i < points.size(); ++i) {
      if (IsBeaten(points, i)) continue;
      const auto first = std::find(points.begin(), points.end(), points[i]) - points.begin();
      if (static_cast<size_t>(first) != i) continue;
      expected.push_back(i);
      alike.push_back(std::count(points.begin(), points.end(), points[i]) - 1);
    }
    const std::vector<ParetoMember> members = ParetoSet(points);
    ASSERT_EQ(members.size(), expected.size());
    for (size_t i = 0; i < members.size(); ++i) {
      EXPECT_EQ(members[i].point, expected[i]);
      EXPECT_EQ(members[i].alike, alike[i]);
    }
  }
}

}  // namespace
}  // namespace twinforge
