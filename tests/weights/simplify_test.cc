// The table of rewrites, row by row from simplify.txt, and what no row can show: sharing,
// substitution, the cost of long chains, and programs of real models' kind.
#include "weights/simplify.h"

#include <fstream>
#include <functional>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/naive_weights.h"
#include "weights/build.h"
#include "weights/text.h"

namespace twinforge {
namespace {

struct Row {
  std::string name, in, out;
};

std::vector<Row> Rows() {
  std::ifstream file(TWINFORGE_SOURCE_DIR "/tests/weights/simplify.txt");
  std::vector<Row> rows;
  for (std::string line; std::getline(file, line);) {
    absl::string_view text = line;
    if (absl::ConsumePrefix(&text, "case: ")) rows.push_back({std::string(text), "", ""});
    if (absl::ConsumePrefix(&text, "in: ")) rows.back().in = std::string(text);
    if (absl::ConsumePrefix(&text, "out: ")) rows.back().out = std::string(text);
  }
  return rows;
}

WeightPtr Parsed(absl::string_view text) {
  absl::StatusOr<WeightPtr> w = ParseWeight(text);
  EXPECT_TRUE(w.ok()) << w.status() << "\n" << text;
  return w.ok() ? *w : nullptr;
}

// Stored tensors with bits that no rule may tell apart: NaNs, infinities, zeros of both signs.
void AddSources(const WeightPtr& w, NaiveTensors& sources) {
  for (const WeightPtr& child : w->children()) AddSources(child, sources);
  for (int64_t i = 0; w->kind() == WeightKind::kStack && i < w->shape()[0]; ++i) {
    AddSources(StackMember(*w, i), sources);
  }
  if (w->kind() != WeightKind::kSource) return;
  NaiveTensor tensor(w->dtype(), w->shape());
  uint64_t state = w->hash();
  for (std::byte& byte : tensor.data) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(state >> 56);
  }
  sources[w->source_name()] = std::move(tensor);
}

bool HasArithmetic(const WeightPtr& w) {
  if (w->kind() == WeightKind::kMap || w->kind() == WeightKind::kStat || w->kind() == WeightKind::kGroup)
    return true;
  return std::any_of(w->children().begin(), w->children().end(), HasArithmetic);
}

class SimplifyTable : public testing::TestWithParam<Row> {};

TEST_P(SimplifyTable, Row) {
  const Row& row = GetParam();
  const WeightPtr raw = Parsed(row.in);
  ASSERT_NE(raw, nullptr);
  EXPECT_EQ(Text(raw), row.in) << "the row is not in canonical spelling";
  const WeightPtr simple = Simplify(raw);
  EXPECT_EQ(Text(simple), row.out == "same" ? row.in : row.out) << row.name;
  if (row.out == "same") {
    EXPECT_EQ(simple, raw);
  }
  EXPECT_EQ(Simplify(simple), simple) << "simplified twice, and not the same";
  EXPECT_EQ(simple->dtype(), raw->dtype());
  EXPECT_EQ(simple->shape(), raw->shape());
  NaiveTensors sources;
  AddSources(raw, sources);
  const auto difference = HasArithmetic(raw) ? Difference : BitDifference;
  EXPECT_EQ(difference(NaiveValue(raw, sources), NaiveValue(simple, sources)), "") << row.name;
}

INSTANTIATE_TEST_SUITE_P(Rules, SimplifyTable, testing::ValuesIn(Rows()),
                         [](const testing::TestParamInfo<Row>& info) {
                           return absl::StrCat("row_", info.index);
                         });

TEST(Simplify, TableIsWhole) { EXPECT_GE(Rows().size(), 75u); }

TEST(Simplify, EqualProgramsAreOneObject) {
  const WeightPtr a = Pad(Source("x", DType::kBF16, {300, 64}), 0, 20);
  const WeightPtr b = Pad(Source("x", DType::kBF16, {300, 64}), 0, 20);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, Pad(Source("x", DType::kBF16, {300, 64}), 0, 20, -1));
  EXPECT_NE(a, Pad(Source("y", DType::kBF16, {300, 64}), 0, 20));
  EXPECT_NE(Source("x", DType::kF16, {4}), Source("x", DType::kBF16, {4}));
}

TEST(Simplify, SubstituteComposesATwinWithItsSource) {
  // The twin of the twin: what the first padded, the second cuts off again.
  const WeightPtr first = Pad(Source("x", DType::kBF16, {300, 64}), 0, 20);
  const WeightPtr second = Transpose(Slice(Source("twin.x", DType::kBF16, {320, 64}), 0, 0, 300), {1, 0});
  const WeightPtr composed = Substitute(second, {{"twin.x", first}});
  EXPECT_EQ(composed, Transpose(Source("x", DType::kBF16, {300, 64}), {1, 0}));
  EXPECT_EQ(Substitute(second, {{"other", first}}), second);
}

TEST(Simplify, ManyLayersStackedAndUnstackedAreTheStoredTensors) {
  std::vector<WeightPtr> layers;
  std::vector<WeightPtr> wrapped;
  for (int i = 0; i < 64; ++i) {
    layers.push_back(Source(absl::StrCat("layers.", i, ".q"), DType::kBF16, {64, 48}));
    wrapped.push_back(Transpose(Reshape(layers.back(), {4, 16, 48}), {2, 0, 1}));
  }
  const WeightPtr stacked = Pad(Stack(0, wrapped), 3, 16);
  EXPECT_EQ(stacked->shape(), Shape({64, 48, 4, 32}));
  for (int i = 0; i < 64; ++i) {
    const WeightPtr back = Reshape(Transpose(Slice(Index(stacked, 0, i), 2, 0, 16), {1, 2, 0}), {64, 48});
    EXPECT_EQ(back, layers[i]);
  }
}

TEST(Simplify, FusedHeadsBecomeOneGather) {
  // Three heads of [q k v] each, taken apart, each padded, and fused again head by head.
  const WeightPtr stored = Source("qkv", DType::kBF16, {3 * 3 * 4, 6});
  const WeightPtr heads = Reshape(stored, {3, 3, 4, 6});
  std::vector<WeightPtr> parts;
  for (int i = 0; i < 3; ++i) parts.push_back(Pad(Index(heads, 1, i), 1, 4));
  const WeightPtr fused = Reshape(Stack(1, parts), {3 * 3 * 8, 6});
  EXPECT_EQ(Text(fused), "take(source(\"qkv\": bf16[36, 6]), 0, [0:4 fill:4] x 9)");
}

TEST(Simplify, RotaryPermutationOfManyHeadsUndoesItself) {
  const WeightPtr stored = Source("q", DType::kBF16, {64 * 128, 256});
  const WeightPtr halves = InterleaveToHalves(Transpose(Reshape(stored, {64, 128, 256}), {2, 0, 1}), 2);
  const WeightPtr home = Reshape(Transpose(HalvesToInterleave(halves, 2), {1, 2, 0}), {64 * 128, 256});
  EXPECT_EQ(home, stored);
  const WeightPtr away = Reshape(Transpose(halves, {1, 2, 0}), {64 * 128, 256});
  EXPECT_EQ(Text(away), "take(source(\"q\": bf16[8192, 256]), 0, [0:128:2 1:128:2] x 64)");
}

// What is done to a program, and undone.
using Undo = std::function<WeightPtr(WeightPtr)>;

int64_t Pick(std::mt19937_64& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

enum class Deed { kSplit, kMerge, kTranspose, kPad, kPermute, kAmongOthers, kStack, kCutAndJoin };

// A program, and of which factors each of its axes consists: layouts split axes where
// meaning splits, at their factors.
struct Laid {
  WeightPtr w;
  std::vector<std::vector<int64_t>> axes;

  void ReshapeToAxes() {
    Shape shape;
    for (const std::vector<int64_t>& factors : axes) shape.push_back(ElementCount(factors));
    w = Reshape(w, shape);
  }
};

std::vector<int64_t> Shuffled(std::mt19937_64& random, int64_t count) {
  std::vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

std::vector<int64_t> Inverted(const std::vector<int64_t>& order) {
  std::vector<int64_t> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[order[i]] = static_cast<int64_t>(i);
  return inverse;
}

Undo Do(Deed deed, std::mt19937_64& random, Laid& laid) {
  WeightPtr& w = laid.w;
  const Shape shape = w->shape();
  const int64_t axis = Pick(random, 0, w->rank() - 1);
  const int64_t extent = shape[axis];
  std::vector<int64_t>& factors = laid.axes[axis];
  switch (deed) {
    case Deed::kSplit: {
      const int64_t at = Pick(random, 0, static_cast<int64_t>(factors.size()));
      const std::vector<int64_t> inner(factors.begin() + at, factors.end());
      factors.resize(at);
      laid.axes.insert(laid.axes.begin() + axis + 1, inner);
      laid.ReshapeToAxes();
      return [shape](WeightPtr x) { return Reshape(x, shape); };
    }
    case Deed::kMerge: {
      if (axis + 1 == w->rank()) return [](WeightPtr x) { return x; };
      const std::vector<int64_t> inner = laid.axes[axis + 1];
      factors.insert(factors.end(), inner.begin(), inner.end());
      laid.axes.erase(laid.axes.begin() + axis + 1);
      laid.ReshapeToAxes();
      return [shape](WeightPtr x) { return Reshape(x, shape); };
    }
    case Deed::kTranspose: {
      const std::vector<int64_t> perm = Shuffled(random, w->rank());
      const std::vector<std::vector<int64_t>> before = laid.axes;
      for (size_t i = 0; i < perm.size(); ++i) laid.axes[i] = before[perm[i]];
      w = Transpose(w, perm);
      return [back = Inverted(perm)](WeightPtr x) { return Transpose(x, back); };
    }
    case Deed::kPad: {
      if (factors.size() != 1)
        return [](WeightPtr x) { return x; };  // at a role's boundary, never at a flat tail
      const int64_t before = Pick(random, 0, 2);
      const IndexMap parts[] = {IndexMap::Fill(before), IndexMap::Identity(extent),
                                IndexMap::Fill(Pick(random, 0, 2))};
      w = Take(w, axis, IndexMap::Join(parts), -1);
      factors = {w->shape()[axis]};
      return [axis, before, extent](WeightPtr x) { return Slice(x, axis, before, extent); };
    }
    case Deed::kPermute: {
      if (factors.size() > 1) return [](WeightPtr x) { return x; };
      const std::vector<int64_t> order = Shuffled(random, extent);
      w = PermuteAxis(w, axis, order);
      return [axis, back = Inverted(order)](WeightPtr x) { return PermuteAxis(x, axis, back); };
    }
    case Deed::kAmongOthers: {
      const WeightPtr other = Source("other", w->dtype(), shape);
      w = Concat(axis, {other, w, other});
      factors = {3 * extent};
      return [axis, extent](WeightPtr x) { return Slice(x, axis, extent, extent); };
    }
    case Deed::kStack: {
      w = Stack(axis, {w, Source("other", w->dtype(), shape)});
      laid.axes.insert(laid.axes.begin() + axis, {2});
      return [axis](WeightPtr x) { return Index(x, axis, 0); };
    }
    case Deed::kCutAndJoin: {
      const int64_t cut = Pick(random, 0, extent);
      w = Concat(axis, {Slice(w, axis, cut, extent - cut), Slice(w, axis, 0, cut)});
      return [axis, cut, extent](WeightPtr x) {
        return Concat(axis, {Slice(x, axis, extent - cut, cut), Slice(x, axis, 0, extent - cut)});
      };
    }
  }
  return nullptr;
}

// Does some of `deeds` to a stored tensor and undoes them in reverse order: the very
// same object must come back.
void DoAndUndo(const std::vector<Deed>& deeds, uint64_t seed, int programs) {
  std::mt19937_64 random(seed);
  for (int i = 0; i < programs; ++i) {
    Laid laid;
    for (int axis = 0; axis < 2; ++axis) laid.axes.push_back({Pick(random, 1, 4), Pick(random, 1, 4)});
    const WeightPtr stored =
        Source("stored", DType::kBF16, {ElementCount(laid.axes[0]), ElementCount(laid.axes[1])});
    laid.w = stored;
    std::vector<Undo> undo;
    std::string history;
    for (int64_t steps = Pick(random, 1, 7); steps > 0 && laid.w->rank() < 7; --steps) {
      const Deed deed = deeds[Pick(random, 0, static_cast<int64_t>(deeds.size()) - 1)];
      undo.push_back(Do(deed, random, laid));
      absl::StrAppend(&history, Text(laid.w), "\n");
    }
    WeightPtr w = laid.w;
    for (; !undo.empty(); undo.pop_back()) {
      w = undo.back()(w);
      absl::StrAppend(&history, "undo: ", Text(w), "\n");
    }
    ASSERT_EQ(w, stored) << "seed " << seed << ", program " << i << "\n" << history;
  }
}

TEST(Simplify, LayoutsDoneAndUndoneAreNothing) {
  DoAndUndo({Deed::kSplit, Deed::kMerge, Deed::kTranspose, Deed::kPad, Deed::kPermute}, 2, 20000);
}

// Splitting an axis where two operands meet is left out: there the bytes do move.
TEST(Simplify, PaddingAndFusingUndoneAreNothing) {
  DoAndUndo(
      {Deed::kTranspose, Deed::kPad, Deed::kPermute, Deed::kAmongOthers, Deed::kStack, Deed::kCutAndJoin}, 3,
      20000);
}

TEST(Build, NamedConstructorsSayWhatTheyMean) {
  const WeightPtr x = Source("x", DType::kF32, {4, 6});
  EXPECT_EQ(Text(RepeatInterleave(x, 0, 2)), "take(source(\"x\": f32[4, 6]), 0, [0*2] x 4)");
  EXPECT_EQ(PermuteAxis(x, 0, {2, 3, 0, 1}), Take(x, 0, *IndexMap::Parse("[2:4 0:2]")));
  EXPECT_EQ(Scale(x, 1), x);
  EXPECT_EQ(AddConstant(x, 0), x);
  EXPECT_EQ(Text(Scale(x, 0.5)), "mul(source(\"x\": f32[4, 6]), fill(0.5: f64[]))");
  EXPECT_EQ(Stack(1, {x, Source("y", DType::kF32, {4, 6})})->shape(), Shape({4, 2, 6}));
  EXPECT_EQ(Text(MergeLora(x, Source("a", DType::kF32, {2, 6}), Source("b", DType::kF32, {4, 2}), 2)),
            "add(source(\"x\": f32[4, 6]), mul(contract(cast(source(\"b\": f32[4, 2]), f64), "
            "source(\"a\": f32[2, 6])), fill(2: f64[])))");
}

TEST(BuildDeath, IllShapedProgramsAreOurBug) {
  const WeightPtr x = Source("x", DType::kF32, {4, 6});
  EXPECT_DEATH(Slice(x, 0, 2, 4), "reads past the end");
  EXPECT_DEATH(Slice(x, 2, 0, 1), "axis that the operand does not have");
  EXPECT_DEATH(Reshape(x, {5, 5}), "number of elements");
  EXPECT_DEATH(Transpose(x, {0, 0}), "twice");
  EXPECT_DEATH(Concat(0, {x, Source("y", DType::kF32, {4, 5})}), "unequal extents");
  EXPECT_DEATH(Concat(0, {x, Source("y", DType::kF16, {4, 6})}), "unequal dtypes");
  EXPECT_DEATH(PermuteAxis(x, 0, {0, 1, 1, 3}), "not a permutation");
  EXPECT_DEATH(Substitute(x, {{"x", Source("y", DType::kF32, {6, 4})}}), "changes the type");
}

}  // namespace
}  // namespace twinforge
