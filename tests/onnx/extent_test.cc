// Arithmetic of extents against numbers: whatever sizes the symbols have, what is known of a result is the
// result of what is known.
#include "onnx/infer/extent.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>

#include "gtest/gtest.h"

namespace twinforge {
namespace {

using Sizes = std::map<std::string, int64_t>;

struct Drawn {
  std::mt19937 random{11};
  int64_t Up(int64_t most) { return static_cast<int64_t>(random() % static_cast<uint32_t>(most + 1)); }

  Sizes SizesOfSymbols() { return {{"a", Up(4)}, {"b", Up(4)}, {"c", Up(4)}}; }
  Dim Polynomial() {
    Dim sum = Dim(Up(6) - 3);
    for (int64_t term = Up(2); term > 0; --term) {
      Dim product = Dim(Up(6) - 2);
      for (int64_t factor = Up(2); factor >= 0; --factor)
        product = product * Dim::Symbol(std::string(1, static_cast<char>('a' + Up(2))));
      sum = sum + product;
    }
    return sum;
  }
};

int64_t FloorDivided(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); }

TEST(Extent, WhatIsKnownHoldsForAllSizes) {
  Drawn draw;
  int quotients = 0, floors = 0, minima = 0, broadcasts = 0;
  for (int n = 0; n < 4000; ++n) {
    const Dim a = draw.Polynomial(), b = draw.Polynomial();
    const int64_t divisor = draw.Up(3) + 1;
    const KnownDim product = DimProduct(a, b), quotient = DimQuotient(a, b), back = DimQuotient(product, b),
                   floor = DimFloor(a, divisor), ceil = DimCeil(a, divisor), least = DimMin(a, b),
                   most = DimMax(a, b), broadcast = DimBroadcast(a, b);
    if (!b.terms().empty() && product && !b.terms().begin()->first.empty())
      quotients += back == KnownDim(a) ? 1 : 0;
    floors += floor && !floor->value() ? 1 : 0;
    minima += least ? 1 : 0;
    broadcasts += broadcast && a.value() != b.value() ? 1 : 0;
    for (int sample = 0; sample < 8; ++sample) {
      const Sizes sizes = draw.SizesOfSymbols();
      const int64_t x = *a.Bind(sizes), y = *b.Bind(sizes);
      const auto holds = [&](const KnownDim& known, int64_t value) {
        EXPECT_TRUE(!known || known->Bind(sizes) == value)
            << a.Text() << " | " << b.Text() << " -> " << known->Text();
      };
      holds(DimSum(a, b), x + y);
      holds(DimDifference(a, b), x - y);
      holds(product, x * y);
      if (y != 0 && quotient) {
        EXPECT_EQ(*quotient->Bind(sizes) * y, x) << a.Text() << " / " << b.Text();
      }
      holds(floor, FloorDivided(x, divisor));
      holds(ceil, -FloorDivided(-x, divisor));
      holds(least, std::min(x, y));
      holds(most, std::max(x, y));
      EXPECT_GE(x, DimLeast(a).value_or(x)) << a.Text();
      EXPECT_LE(x, DimMost(a).value_or(x)) << a.Text();
      if (DimsDiffer(a, b)) {
        EXPECT_NE(x, y) << a.Text() << " and " << b.Text();
      }
      if (x == y || x == 1 || y == 1) {
        EXPECT_TRUE(Broadcasts(a, b)) << a.Text() << " and " << b.Text();
        holds(broadcast, x == 1 ? y : x);
      }
      if (x == y) holds(DimMeet(a, b), x);
    }
  }
  EXPECT_GT(std::min({quotients, floors, minima, broadcasts}), 200) << "too little is known";
}

TEST(Extent, WhatOverflowsOrGrowsIsNotKnown) {
  const Dim n = Dim::Symbol("n"), big = Dim(INT64_MAX), least = Dim(INT64_MIN);
  EXPECT_EQ(DimSum(big, Dim(1)), std::nullopt);
  EXPECT_EQ(DimProduct(big, Dim(2)), std::nullopt);
  EXPECT_EQ(DimDifference(Dim(0), least), std::nullopt);
  EXPECT_EQ(DimQuotient(least, Dim(-1)), std::nullopt);
  EXPECT_EQ(DimQuotient(least, n), std::nullopt);
  EXPECT_EQ(DimQuotient(n, Dim(0)), std::nullopt);
  EXPECT_EQ(DimFloor(n, 0), std::nullopt);
  EXPECT_EQ(DimCeil(big, 3), std::nullopt);
  KnownDim power = n, wide = Dim(0);
  for (int k = 0; k < 64; ++k) {
    power = DimProduct(power, n);
    wide = DimSum(wide, Dim::Symbol("s" + std::to_string(k)));
  }
  EXPECT_EQ(power, std::nullopt);
  EXPECT_EQ(wide, std::nullopt);
}

TEST(Extent, FactsJoin) {
  const Dim n = Dim::Symbol("n");
  const OnnxFact a{ElementType::kInt64, KnownDims{Dim(2)}, KnownDims{n, Dim(3)}},
      b{ElementType::kInt64, KnownDims{Dim(2)}, KnownDims{n, Dim(4)}};
  EXPECT_EQ(JoinFacts(a, a), a);
  EXPECT_EQ(JoinFacts(a, b).elements, (KnownDims{n, std::nullopt}));
  const OnnxFact matrix{ElementType::kFloat, KnownDims{Dim(2), n}, std::nullopt};
  EXPECT_EQ(JoinFacts(a, matrix), OnnxFact());
}

}  // namespace
}  // namespace twinforge
