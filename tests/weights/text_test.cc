// The printed form: what is printed is read back as the same object, and what is not a
// program is refused with its place.
#include "weights/text.h"

#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "weights/build.h"
#include "weights/pool.h"
#include "weights/simplify.h"

namespace twinforge {
namespace {

TEST(Text, EveryVerbReadsBack) {
  const WeightPtr x = Source("x", DType::kF32, {8, 6});
  const WeightPtr y = Source("y", DType::kF32, {6});
  for (const WeightPtr& w : {
           x,
           Source("", DType::kBool, {}),
           Source("odd \"name\"\\ \n\t\x01 \xc3\xa9", DType::kF8E8M0, {0, 3}),
           Fill(-0.0, DType::kF16, {2}),
           Fill(0.1, DType::kBF16, {2}),
           Fill(1e300, DType::kF64, {}),
           Fill(-INFINITY, DType::kF32, {1}),
           Fill(NAN, DType::kF32, {1}),
           Pad(x, 0, 3, -INFINITY),
           Take(x, 1, *IndexMap::Parse("[(0 2) x 2 by 3 fill:2]"), 0.5),
           Transpose(x, {1, 0}),
           Reshape(x, {2, 4, 6}),
           Reshape(Slice(Slice(x, 0, 3, 1), 1, 2, 1), {}),
           Concat(1, {x, Source("z", DType::kF32, {8, 1})}),
           Cast(x, DType::kF8E4M3Fnuz),
           Map(MapFn::kAdd, x, y),
           Map(MapFn::kSub, x, y),
           Map(MapFn::kDiv, x, y),
           Scale(x, 1 / 3.0),
           Contract(x, Transpose(x, {1, 0})),
           Stat(StatKind::kAbsMax, x, {0, 1}),
           Stat(StatKind::kMean, x, {1}),
           Stat(StatKind::kSumSquares, x, {0}),
           Stat(StatKind::kMin, x, {}),
           Stat(StatKind::kMax, x, {0}),
           GroupKeepLargest(x, 0, 4, 2),
           GroupScale(x, 1, 3, DType::kI8),
           GroupCodes(x, 1, 3, DType::kF8E4M3),
       }) {
    const absl::StatusOr<WeightPtr> parsed = ParseWeight(Text(w));
    ASSERT_TRUE(parsed.ok()) << Text(w) << ": " << parsed.status();
    EXPECT_EQ(*parsed, w) << Text(w);
  }
}

TEST(Text, ParsesWithSpaceAndEscapes) {
  const absl::StatusOr<WeightPtr> w = ParseWeight(
      "take (\n  source(\"caf\\u00e9 \\ud83d\\ude00\\/\" : bf16 [ 4,2 ] ) , 0,\n [ 0:4   fill:4 ] , -inf "
      ")\n");
  ASSERT_TRUE(w.ok()) << w.status();
  EXPECT_EQ(*w, Pad(Source("caf\xc3\xa9 \xf0\x9f\x98\x80/", DType::kBF16, {4, 2}), 0, 4, -INFINITY));
}

TEST(Text, NumbersAreAsShortAsTheirTypeAllows) {
  EXPECT_EQ(Text(Fill(0.1f, DType::kF32, {})), "fill(0.1: f32[])");
  EXPECT_EQ(Text(Fill(0.1, DType::kF64, {})), "fill(0.1: f64[])");
  EXPECT_EQ(Text(Fill(0.1f, DType::kF64, {})), "fill(0.10000000149011612: f64[])");
  EXPECT_EQ(Text(Fill(300, DType::kF32, {})), "fill(300: f32[])");
  EXPECT_EQ(Text(Fill(1, DType::kF32, {})), "fill(1: f32[])");
}

struct Refusal {
  const char* text;
  const char* message;
};

TEST(Text, RefusesWhatIsNoProgram) {
  for (const Refusal& c : std::vector<Refusal>{
           {"", "expected a verb"},
           {"foo(1)", "unknown verb 'foo'"},
           {"source(x: f32[1])", "expected '\"'"},
           {"source(\"x: f32[1])", "expected '\"'"},
           {"source(\"x\\q\": f32[1])", "unknown escape"},
           {"source(\"x\\ud800\": f32[1])", "surrogate"},
           {"source(\"x\\u12\": f32[1])", "hexadecimal"},
           {"source(\"x\": float32[1])", "expected a dtype"},
           {"source(\"x\": f32[-1])", "negative or too large"},
           {"source(\"x\": f32[99999999999, 99999999999])", "negative or too large"},
           {"source(\"x\": f32[1.5])", "whole number"},
           {"source(\"x\": f32[1]) source", "end of the program"},
           {"source(\"x\": f32[1]", "expected ')'"},
           {"fill(a: f32[1])", "expected a number"},
           {"fill(0x10: f32[1])", "expected a number"},
           {"stack(\"e.\", 0:0, \".w\": f32[4])", "needs members"},
           {"stack(\"e.\", -1:2, \".w\": f32[4])", "needs members"},
           {"stack(\"e.\", 3:2, \".w\": f32[4])", "needs members"},
           {"stack(\"e.\", 0:65537, \".w\": f32[4])", "at most 65536"},
           {"stack(\"e.\", 0:2, \".w\": f32[-4])", "negative or too large"},
           {"stack(\"e.\", 0 2, \".w\": f32[4])", "expected ':'"},
           {"stack(\"e.\", 0:2: f32[4])", "expected ','"},
           {"take(source(\"x\": f32[4]), 0, [0:5])", "past the end"},
           {"take(source(\"x\": f32[4]), 1, [0:4])", "does not have"},
           {"take(source(\"x\": f32[4]), -1, [0:4])", "does not have"},
           {"take(source(\"x\": f32[4]), 0, [0:4)", "expected"},
           {"take(source(\"x\": f32[4]), 0)", "expected ','"},
           {"transpose(source(\"x\": f32[4, 2]), [0, 0])", "twice"},
           {"transpose(source(\"x\": f32[4, 2]), [0])", "one entry per axis"},
           {"reshape(source(\"x\": f32[4, 2]), [9])", "number of elements"},
           {"reshape(source(\"x\": f32[4, 2]), [-1])", "number of elements"},
           {"concat(0)", "concat of nothing"},
           {"concat(0, source(\"x\": f32[4]), source(\"y\": f16[4]))", "unequal dtypes"},
           {"concat(0, source(\"x\": u8[9223372036854775807]), source(\"y\": u8[9223372036854775807]))",
            "too long"},
           {"cast(source(\"x\": c64[4]), f32)", "complex"},
           {"mul(source(\"x\": f32[4]), source(\"y\": f32[3]))", "broadcast"},
           {"mul(source(\"x\": f32[4]), source(\"y\": f32[1, 4]))", "more axes"},
           {"contract(source(\"x\": f32[4, 2]), source(\"y\": f32[3, 4]))", "inner extents"},
           {"stat(median, source(\"x\": f32[4]), [0])", "expected a statistic"},
           {"stat(max, source(\"x\": f32[4, 4]), [1, 0])", "ascending"},
           {"keep(source(\"x\": f32[4]), 0, 5 of 4)", "more elements kept"},
           {"keep(source(\"x\": f32[4]), 0, 2 in 4)", "expected 'of'"},
           {"scale(source(\"x\": f32[4]), 0, 3, i8)", "do not divide"},
           {"codes(source(\"x\": f32[4]), 0, 0, i8)", "do not divide"},
           {"codes(source(\"x\": f32[4]), 0, 2, bool)", "no codes"},
       }) {
    const absl::StatusOr<WeightPtr> w = ParseWeight(c.text);
    ASSERT_FALSE(w.ok()) << c.text;
    const std::optional<Diagnostic> diagnostic = DiagnosticOf(w.status());
    ASSERT_TRUE(diagnostic.has_value()) << c.text;
    EXPECT_EQ(diagnostic->code, 1590);
    EXPECT_TRUE(absl::StrContains(diagnostic->message, c.message)) << c.text << ": " << diagnostic->message;
  }
}

TEST(Text, NamesLineAndColumn) {
  const absl::StatusOr<WeightPtr> w = ParseWeight("take(\n  sauce(\"x\": f32[4]), 0, [0])");
  ASSERT_FALSE(w.ok());
  EXPECT_EQ(DiagnosticOf(w.status())->place, "weight program: line 2, column 3");
}

TEST(Text, DepthIsBounded) {
  std::string deep = "source(\"x\": f32[4])";
  for (int i = 0; i < 100; ++i) deep = absl::StrCat("cast(", deep, ", f16)");
  EXPECT_TRUE(ParseWeight(deep).ok());
  std::string hostile;
  for (int i = 0; i < 1000000; ++i) hostile += "cast(";
  const absl::StatusOr<WeightPtr> w = ParseWeight(hostile);
  ASSERT_FALSE(w.ok());
  EXPECT_EQ(DiagnosticOf(w.status())->message, "the program is nested too deeply");
}

TEST(Text, RepetitionIsBounded) {
  // Thirty bytes a map, a million runs each: the program is refused before it fills the memory.
  std::string hostile = "concat(0";
  for (int i = 0; i < 1000; ++i) hostile += ", take(source(\"x\": u8[3000000]), 0, [0] x 1000000 by 3)";
  const absl::StatusOr<WeightPtr> w = ParseWeight(hostile + ")");
  ASSERT_FALSE(w.ok());
  EXPECT_EQ(DiagnosticOf(w.status())->message, "more runs than a tensor can need");
}

// ---- the pool

TEST(Pool, ForgetsWhatNobodyHolds) {
  const int64_t before = WeightPool::LiveCount();
  {
    const WeightPtr w = Pad(Source("pool.x", DType::kF32, {5, 7}), 0, 3);
    EXPECT_EQ(WeightPool::LiveCount(), before + 2);
    const WeightPtr again = Pad(Source("pool.x", DType::kF32, {5, 7}), 0, 3);
    EXPECT_EQ(w, again);
    EXPECT_EQ(WeightPool::LiveCount(), before + 2);
  }
  EXPECT_EQ(WeightPool::LiveCount(), before);
}

TEST(Pool, HashesAreStable) {
  // Compared with the numbers of the first release: a manifest may hold them.
  EXPECT_EQ(absl::StrCat(absl::Hex(Source("x", DType::kF32, {8, 6})->hash())), "cc5cb6da601b8b1");
  EXPECT_EQ(absl::StrCat(absl::Hex(Pad(Source("x", DType::kF32, {8, 6}), 0, 3)->hash())), "3826c88e1141ade8");
}

TEST(Pool, ThreadsGetOneObjectAndLetItGo) {
  const int64_t before = WeightPool::LiveCount();
  constexpr int kThreads = 4;
  constexpr int kRounds = 3000;
  std::vector<std::vector<WeightPtr>> kept(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t, &kept] {
      for (int i = 0; i < kRounds; ++i) {
        // The same few programs are made and dropped by all threads at once.
        const WeightPtr w = Pad(Source(absl::StrCat("shared.", i % 7), DType::kF32, {5, 7}), i % 2, 3);
        if (i % 100 == 0) kept[t].push_back(w);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 1; t < kThreads; ++t) EXPECT_EQ(kept[t], kept[0]);
  kept.clear();
  EXPECT_EQ(WeightPool::LiveCount(), before);
}

// Members keep their own numbers; a stack is a leaf that stands for all of them.
TEST(Pool, StacksAreTheirMembersJoined) {
  const WeightPtr stack = StackedSources("e.", 9, 3, ".w", DType::kBF16, {2, 4});
  EXPECT_EQ(stack->shape(), (Shape{3, 2, 4}));
  EXPECT_EQ(Text(stack), "stack(\"e.\", 9:12, \".w\": bf16[2, 4])");
  EXPECT_EQ(ParseWeight(Text(stack)).value(), stack);
  EXPECT_EQ(StackMember(*stack, 2), Source("e.11.w", DType::kBF16, {2, 4}));
  EXPECT_EQ(SourcesOf(stack), (std::vector<std::string>{"e.10.w", "e.11.w", "e.9.w"}));
  EXPECT_TRUE(OnlyMoves(stack));
  EXPECT_NE(stack, StackedSources("e", 9, 3, "..w", DType::kBF16, {2, 4}));
  const WeightPtr bound = Source("other", DType::kBF16, {2, 4});
  EXPECT_EQ(Substitute(stack, {{"x", bound}}), stack);
  EXPECT_EQ(
      Text(Substitute(stack, {{"e.10.w", bound}})),
      "concat(0, reshape(source(\"e.9.w\": bf16[2, 4]), [1, 2, 4]), reshape(source(\"other\": bf16[2, 4]), "
      "[1, 2, 4]), reshape(source(\"e.11.w\": bf16[2, 4]), [1, 2, 4]))");
}

TEST(Pool, AStackOfManyTextsIsBounded) {
  std::string hostile = "concat(0";
  for (int i = 0; i < 100; ++i) hostile += absl::StrCat(", stack(\"e", i, ".\", 0:65536, \"\": u8[1])");
  EXPECT_THAT(ParseWeight(hostile + ")").status().message(), testing::HasSubstr("too many members"));
}

TEST(Pool, AskingAboutPrograms) {
  const WeightPtr x = Source("x", DType::kF32, {5, 7});
  const WeightPtr moved = Concat(0, {Pad(x, 1, 1), Source("a", DType::kF32, {2, 8})});
  EXPECT_TRUE(OnlyMoves(moved));
  EXPECT_FALSE(OnlyMoves(Transpose(Cast(x, DType::kF16), {1, 0})));
  EXPECT_FALSE(OnlyMoves(Scale(x, 2)));
  EXPECT_EQ(SourcesOf(Map(MapFn::kAdd, moved, moved)), (std::vector<std::string>{"a", "x"}));
  EXPECT_EQ(ProgramSize(Map(MapFn::kAdd, moved, moved)), 5);
}

}  // namespace
}  // namespace twinforge
