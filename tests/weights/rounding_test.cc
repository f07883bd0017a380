// How far off roundings put a value: never further than its program says, and not much less either.
#include "weights/rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/random_weights.h"
#include "weights/build.h"
#include "weights/text.h"

namespace twinforge {
namespace {

std::vector<double> ValuesOf(const WeightPtr& program, const NaiveTensors& sources) {
  const NaiveTensor value = NaiveValue(program, sources);
  std::vector<double> values;
  for (int64_t i = 0; i < ElementCount(value.shape); ++i)
    values.push_back(ToDouble(value.dtype, value.at(i)));
  return values;
}

struct Closeness {
  int64_t elements = 0, rounded = 0;
  double nearest = 0;  // the largest part of its bound that any element lost
};

void CheckBound(const WeightPtr& program, const NaiveTensors& sources, Closeness& found) {
  const ErrorBound bound = ErrorBoundOf(program);
  if (!bound.known) return;
  const std::vector<double> stored = ValuesOf(program, sources), exact = ValuesOf(bound.exact, sources);
  std::vector<double> inner(stored.size(), 0);
  if (bound.inner != nullptr) inner = ValuesOf(bound.inner, sources);
  ASSERT_EQ(stored.size(), exact.size());
  ASSERT_EQ(stored.size(), inner.size());
  for (size_t i = 0; i < stored.size(); ++i) {
    if (!std::isfinite(stored[i]) || !std::isfinite(exact[i])) continue;  // overflow is another matter
    const double lost = std::abs(stored[i] - exact[i]);
    const double allowed = bound.relative * std::abs(exact[i]) + bound.absolute + inner[i];
    ASSERT_LE(lost, allowed) << stored[i] << " for " << exact[i] << " in " << Text(program);
    ++found.elements;
    if (lost == 0) continue;
    ++found.rounded;
    EXPECT_GT(bound.of_magnitude, 0);
    found.nearest = std::max(found.nearest, lost / allowed);
  }
}

TEST(ErrorBound, HoldsForRandomPrograms) {
  Random random(20261130);
  RandomOptions options;
  options.verbs = 6;
  options.dtypes = {DType::kF16, DType::kBF16, DType::kF32, DType::kF64};
  Closeness found;
  for (int i = 0; i < 30000 && !testing::Test::HasFatalFailure(); ++i) {
    NaiveTensors sources;
    const RandomProgram made = MakeRandomProgram(random, options, sources);
    if (IsFloat(made.program->dtype())) CheckBound(made.program, sources, found);
  }
  EXPECT_GT(found.rounded, 50000);
  EXPECT_GT(found.nearest, 0.99);
}

// One tensor of n values around `size`, in f64 so that nothing is lost before the program.
NaiveTensors Spread(const std::vector<std::string>& names, DType dtype, int64_t n, double size) {
  Random random(7);
  NaiveTensors sources;
  for (const std::string& name : names) {
    NaiveTensor tensor(dtype, {n});
    std::uniform_real_distribution<double> value(-size, size);
    for (int64_t i = 0; i < n; ++i) FromDouble(dtype, value(random), tensor.at(i));
    sources.emplace(name, std::move(tensor));
  }
  return sources;
}

TEST(ErrorBound, HoldsForTheProgramsThatRewritesMake) {
  const int64_t n = 800;
  for (const DType narrow : {DType::kBF16, DType::kF16}) {
    for (const double size : {1.0, 1e-4, 3e-8}) {  // the last are f16's subnormal numbers
      const NaiveTensors sources = Spread({"w", "g"}, DType::kF32, n, size);
      const WeightPtr w = Source("w", DType::kF32, {n}), g = Source("g", DType::kF32, {n});
      const WeightPtr cast = Cast(w, narrow), gain = Cast(g, narrow);
      const WeightPtr folded = Map(MapFn::kMul, cast, AddConstant(Cast(gain, DType::kF64), 1));
      const std::vector<WeightPtr> programs = {
          cast,
          Cast(cast, DType::kF32),
          Cast(Cast(w, DType::kF16), DType::kBF16),
          folded,
          Cast(Map(MapFn::kMul, cast, gain), DType::kF64),
          Scale(Scale(folded, std::sqrt(1.5)), std::sqrt(4.0 / 3)),
          Cast(AddConstant(Scale(AddConstant(Cast(gain, DType::kF64), 1), 1.1), -1), narrow),
          GroupKeepLargest(folded, 0, 4, 2),
      };
      for (const WeightPtr& program : programs) {
        Closeness found;
        CheckBound(program, sources, found);
        EXPECT_EQ(found.elements, n);
        if (program->kind() == WeightKind::kGroup) continue;  // what it selects from is measured apart
        EXPECT_GT(found.rounded, n / 4) << Text(program);
        // A bound that is much too wide would prove nothing.
        if (size == 1) {
          EXPECT_GT(found.nearest, 0.3) << Text(program);
        }
      }
    }
  }
}

TEST(StatedRoundings, CountWhatAClaimMustName) {
  const WeightPtr f32 = Source("w", DType::kF32, {8}), bf16 = Source("b", DType::kBF16, {8}),
                  f64 = Source("d", DType::kF64, {8});
  const double u = std::ldexp(1, -8);
  const auto bound = [](const WeightPtr& w) { return StatedRoundings(w).Bound(); };
  EXPECT_EQ(bound(f32), 0);
  EXPECT_EQ(bound(Cast(f32, DType::kBF16)), u);
  EXPECT_EQ(bound(Cast(bf16, DType::kF32)), 0);
  EXPECT_EQ(bound(Cast(Cast(f32, DType::kBF16), DType::kF32)), u);
  EXPECT_EQ(bound(Scale(bf16, 1.5)), u);
  EXPECT_EQ(bound(Scale(bf16, 2)), 0);   // the exponent moves
  EXPECT_EQ(bound(Scale(f32, 1.5)), 0);  // no narrower than what is claimed of f32
  EXPECT_EQ(bound(Cast(f64, DType::kF32)), std::ldexp(1, -24));
  EXPECT_EQ(bound(Scale(f64, 1.5)), 0);
  // A product inherits the roundings of both its operands.
  EXPECT_EQ(
      bound(Map(MapFn::kMul, Cast(f32, DType::kBF16), Cast(Source("g", DType::kF32, {8}), DType::kBF16))),
      (1 + u) * (1 + u) * (1 + u) - 1);
  // A sum those of the one that has more.
  EXPECT_EQ(bound(Concat(0, {Cast(f32, DType::kBF16), bf16})), u);
}

TEST(NarrowestType, IsWhatAValueWentThrough) {
  const WeightPtr f32 = Source("w", DType::kF32, {8});
  EXPECT_EQ(NarrowestType(f32), DType::kF32);
  EXPECT_EQ(NarrowestType(Cast(Cast(f32, DType::kBF16), DType::kF32)), DType::kBF16);
  EXPECT_EQ(NarrowestType(Cast(Source("b", DType::kBF16, {8}), DType::kF32)), DType::kF32);
  EXPECT_EQ(NarrowestType(Cast(Scale(Source("h", DType::kF16, {8}), 1.5), DType::kF64)), DType::kF16);
}

TEST(Unrounded, SelectsAnewOrAsWasSelected) {
  // bf16 makes equals of these two: the first stays; exactly, the second is larger.
  NaiveTensors sources;
  NaiveTensor& w = sources["w"] = NaiveTensor(DType::kF32, {2});
  FromDouble(DType::kF32, 1.0, w.at(0));
  FromDouble(DType::kF32, 1.0 + std::ldexp(1, -20), w.at(1));
  const WeightPtr kept = GroupKeepLargest(Cast(Source("w", DType::kF32, {2}), DType::kBF16), 0, 2, 1);
  EXPECT_EQ(ValuesOf(kept, sources), (std::vector<double>{1, 0}));
  EXPECT_EQ(ValuesOf(Unrounded(kept), sources), (std::vector<double>{0, 1.0 + std::ldexp(1, -20)}));
  EXPECT_EQ(ValuesOf(Unrounded(kept, Selections::kAsMade), sources), (std::vector<double>{1, 0}));
  EXPECT_EQ(SelectedFrom(kept).size(), 1u);
}

TEST(HalfUnit, IsTheDistanceToTheNextNumber) {
  for (const DType dtype : AllDTypes()) {
    if (!IsFloat(dtype) || dtype == DType::kF8E8M0) continue;
    std::byte code[8];
    FromDouble(dtype, 1 + 1.5 * HalfUnit(dtype), code);  // nearer to the next number than to 1
    EXPECT_EQ(ToDouble(dtype, code), 1 + 2 * HalfUnit(dtype)) << Name(dtype);
    FromDouble(dtype, SmallestNormal(dtype), code);
    EXPECT_EQ(ToDouble(dtype, code), SmallestNormal(dtype)) << Name(dtype);
    FromDouble(dtype, SmallestNormal(dtype) * (1 - HalfUnit(dtype)), code);  // its spacing doubles below
    EXPECT_EQ(ToDouble(dtype, code), SmallestNormal(dtype)) << Name(dtype);
  }
}

}  // namespace
}  // namespace twinforge
