#include "check/wide.h"

#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace twinforge {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

TEST(Wide, RemembersAnOverflow) {
  const Wide square = Wide(kMost) * kMost;
  EXPECT_TRUE(square.ok());
  EXPECT_EQ(PlainNumber(square), "85070591730234615847396907784232501249");
  const Wide beyond = square * 5;
  EXPECT_FALSE(beyond.ok());
  EXPECT_EQ(PlainNumber(beyond), "beyond 128 bits");
  EXPECT_FALSE((beyond + 1).ok());
  EXPECT_FALSE(Floor(beyond, 1 << 30).ok()) << "an overflow is not undone";
  EXPECT_FALSE(beyond == beyond) << "and equals nothing";
  EXPECT_FALSE((square + square + square + square + square).ok());
}

TEST(Wide, RoundsUpAndDown) {
  EXPECT_TRUE(Ceil(Wide(10), 3) == Wide(4));
  EXPECT_TRUE(Ceil(Wide(9), 3) == Wide(3));
  EXPECT_TRUE(Floor(Wide(11), 3) == Wide(3));
  EXPECT_TRUE(Up(Wide(10), 8) == Wide(16));
  EXPECT_TRUE(Up(Wide(0), 8) == Wide(0));
  EXPECT_TRUE(Beyond(Wide(3), 5) == Wide(0));
  EXPECT_TRUE(Beyond(Wide(5), 3) == Wide(2));
  EXPECT_TRUE(Least(Wide(2), 3) == Wide(2));
  EXPECT_TRUE(Most(Wide(2), 3) == Wide(3));
  EXPECT_FALSE(Ceil(Wide(1), 0).ok());
  EXPECT_FALSE(Least(Wide(1), Wide::None()).ok());
  EXPECT_FALSE(Wide(-1).ok());
}

TEST(Seconds, HaveTwentyOneDecimalsRoundedDown) {
  EXPECT_EQ(PlainSeconds(Quotient21(2, 3)), "0.666666666666666666666");
  EXPECT_EQ(PlainSeconds(Quotient21(10, 1)), "10.000000000000000000000");
  EXPECT_EQ(PlainSeconds(Quotient21(2000, int64_t{918000000000000})), "0.000000000002178649237");
  EXPECT_EQ(PlainSeconds(Quotient21(0, 7)), "0.000000000000000000000");
  EXPECT_FALSE(Quotient21(1, 0).ok());
}

}  // namespace
}  // namespace twinforge
