// Attention's masks and slants, rotary scalings, routers and stems, against formulas written out one number
// at a time.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/decompose.h"
#include "ir/rope.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "tests/eval/single_op.h"

namespace twinforge {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBatch = 2, kSeq = 7, kModel = 4, kHeads = 4, kKvHeads = 2, kDim = 3;

const SlotTypes& AttentionKernels() {
  static const auto* const slots = new SlotTypes{{"q", "d_model=4 -> heads=4, head_dim=3"},
                                                 {"k", "d_model=4 -> kv_heads=2, head_dim=3"},
                                                 {"v", "d_model=4 -> kv_heads=2, head_dim=3"},
                                                 {"o", "heads=4, head_dim=3 -> d_model=4"}};
  return *slots;
}

struct Scoring {
  bool causal = true;
  int64_t window = 0, chunk = 0;
  double softcap = 0;
  std::vector<double> slopes;
};

// One sum after another; nothing is shared with the decomposition.
Values4 NaiveAttention(const SingleOp& op, const Values4& x, double scale, const Scoring& how) {
  const Values4 q = op.Param("q"), k = op.Param("k"), v = op.Param("v"), o = op.Param("o");
  const Values4 sinks = op.Has("sinks") ? op.Param("sinks") : Values4();
  Values4 y(x.shape(), std::vector<double>(x.data().size(), 0));
  const auto project = [&](const Values4& kernel, int64_t b, int64_t t, int64_t h, int64_t i) {
    double sum = 0;
    for (int64_t c = 0; c < kModel; ++c) sum += x.at({b, t, c}) * kernel.at({c, h, i});
    return sum;
  };
  for (int64_t b = 0; b < kBatch; ++b) {
    for (int64_t t = 0; t < kSeq; ++t) {
      for (int64_t h = 0; h < kHeads; ++h) {
        const int64_t g = h / (kHeads / kKvHeads);
        std::vector<double> weights(kSeq, 0);
        double total = op.Has("sinks") ? std::exp(sinks.at({h})) : 0;
        for (int64_t s = 0; s < kSeq; ++s) {
          if (how.causal && s > t) continue;
          if (how.window != 0 && t - s >= how.window) continue;
          if (how.chunk != 0 && t / how.chunk != s / how.chunk) continue;
          double score = 0;
          for (int64_t i = 0; i < kDim; ++i) score += project(q, b, t, h, i) * project(k, b, s, g, i);
          score *= scale;
          if (how.softcap != 0) score = how.softcap * std::tanh(score / how.softcap);
          if (!how.slopes.empty()) score += how.slopes[h] * static_cast<double>(s - t);
          weights[s] = std::exp(score);
          total += weights[s];
        }
        for (int64_t s = 0; s < kSeq; ++s) {
          for (int64_t i = 0; i < kDim; ++i) {
            const double mixed = weights[s] / total * project(v, b, s, g, i);
            for (int64_t c = 0; c < kModel; ++c) y.at({b, t, c}) += mixed * o.at({h, i, c});
          }
        }
      }
    }
  }
  return y;
}

TEST(Attention, MasksSlantsAndSinksAreThoseOfTheFormula) {
  struct Way {
    std::string attrs;
    Scoring scoring;
    bool sinks = false;
  };
  const std::vector<Way> ways = {
      {"causal: true", {}},
      {"", {.causal = false}},
      {"causal: true window: 3", {.window = 3}},
      {"causal: true window: 1", {.window = 1}},
      {"causal: true chunk: 3", {.chunk = 3}},
      {"causal: true chunk: 3 window: 2", {.window = 2, .chunk = 3}},
      {"chunk: 4", {.causal = false, .chunk = 4}},
      {"causal: true softcap: 0.5", {.softcap = 0.5}},
      {"causal: true alibi: 0.5 alibi: 0.25 alibi: 0.125 alibi: 0.0625",
       {.slopes = {0.5, 0.25, 0.125, 0.0625}}},
      {"causal: true window: 4", {.window = 4}, true},
  };
  const Values4 x = SingleOp::Random({kBatch, kSeq, kModel}, 2);
  for (const Way& way : ways) {
    SCOPED_TRACE(way.attrs);
    SlotTypes slots = AttentionKernels();
    if (way.sinks) slots.push_back({"sinks", "heads=4"});
    const SingleOp op("attention", absl::StrCat("scale: 0.75 ", way.attrs), slots);
    const Values4 want = NaiveAttention(op, x, 0.75, way.scoring);
    ExpectSame(want, op.Run(x));
    ExpectSame(want, op.RunOnce(x));
    if (way.scoring.causal) ExpectSame(want, op.RunInPieces(x, {2, 1, 4}));
  }
}

TEST(Attention, RefusesSlopesAndChunksThatDoNotFit) {
  for (const auto& [attrs, reason] :
       {std::pair("alibi: 1", "1 slopes for 4 heads"), std::pair("chunk: -1", "chunk is -1")}) {
    const SingleOp op("attention", "scale: 1", AttentionKernels());
    std::string text = Text(op.graph());
    text.replace(text.find("scale: 1"), 8, absl::StrCat("scale: 1 ", attrs));
    const auto graph = ParseGraph(text);
    EXPECT_EQ(DiagnosticOf(graph.status())->code, 1501);
    EXPECT_THAT(DiagnosticOf(graph.status())->message, HasSubstr(reason));
  }
}

TEST(Attention, HasNoMeaningWithoutASequence) {
  const SingleOp op("attention", "scale: 1", AttentionKernels(), "f64[seq, d_model=4]");
  const Node& node = *op.graph().FindNode("y");
  EXPECT_TRUE(StateOf(op.graph(), node).empty());
  const auto body = DecompositionOf(op.graph(), node, DecompositionDepth::kOnce, false);
  EXPECT_EQ(DiagnosticOf(body.status())->code, 1501);
  EXPECT_THAT(DiagnosticOf(body.status())->message, HasSubstr("not [batch, seq, channels]"));
}

// ---- rotary embeddings

// Each pair turned by its own angle, computed here.
Values4 NaiveRope(const Values4& x, bool halves, int64_t rotary, double magnitude,
                  const std::function<double(int64_t)>& frequency) {
  Values4 y = x;
  for (int64_t b = 0; b < x.shape()[0]; ++b) {
    for (int64_t t = 0; t < x.shape()[1]; ++t) {
      for (int64_t i = 0; i < rotary / 2; ++i) {
        const int64_t first = halves ? i : 2 * i, second = halves ? i + rotary / 2 : 2 * i + 1;
        const double angle = static_cast<double>(t) * frequency(i);
        const double u = x.at({b, t, first}), v = x.at({b, t, second});
        y.at({b, t, first}) = magnitude * (u * std::cos(angle) - v * std::sin(angle));
        y.at({b, t, second}) = magnitude * (v * std::cos(angle) + u * std::sin(angle));
      }
    }
  }
  return y;
}

Values4 RunRope(const std::string& attrs, const Values4& x) {
  const auto graph = ParseGraph(absl::StrCat(
      "graph t(x: f64[batch, seq, width=8], at: i32[batch, seq]) -> (y: y) {\n  y = rope(x, at) {", attrs,
      "}\n}\n"));
  EXPECT_TRUE(graph.ok()) << graph.status();
  std::vector<double> places;
  for (int64_t i = 0; i < x.shape()[0] * x.shape()[1]; ++i)
    places.push_back(static_cast<double>(i % x.shape()[1]));
  const RandomTensors reader(1);
  const auto out = Evaluate(*graph, StoredParams(reader),
                            {{"x", Tensor(DType::kF64, x.shape(), x.data())},
                             {"at", Tensor(DType::kI32, {x.shape()[0], x.shape()[1]}, places)}});
  EXPECT_TRUE(out.ok()) << out.status();
  return Values4(out->at("y").shape(), out->at("y").values());
}

TEST(Rope, TurnsPairsOfEitherStyleWholeOrInPart) {
  const Values4 x = SingleOp::Random({2, 5, 8}, 3);
  for (int64_t rotary : {2, 6, 8}) {
    for (bool halves : {true, false}) {
      const std::string attrs =
          absl::StrCat("style: ", halves ? "HALVES" : "INTERLEAVED", " theta: 100 rotary_dim: ", rotary);
      SCOPED_TRACE(attrs);
      ExpectSame(NaiveRope(x, halves, rotary, 1,
                           [&](int64_t i) {
                             return std::pow(100,
                                             -2.0 * static_cast<double>(i) / static_cast<double>(rotary));
                           }),
                 RunRope(attrs, x));
    }
  }
}

// With more positions than the trained length every scaling has its say; transformers judges the numbers
// themselves in tests/oracle, here is that the op follows the length.
TEST(Rope, DynamicAndLongScalingsFollowTheLength) {
  const Values4 brief = SingleOp::Random({1, 4, 8}, 3), beyond = SingleOp::Random({1, 12, 8}, 3);
  const auto base = [](double theta) {
    return [theta](int64_t i) { return std::pow(theta, -static_cast<double>(i) / 4); };
  };
  const std::string dynamic =
      "style: HALVES theta: 100 rotary_dim: 8 max_position_embeddings: 6 scaling { kind: DYNAMIC factor: 2 }";
  ExpectSame(NaiveRope(brief, true, 8, 1, base(100)), RunRope(dynamic, brief));
  ExpectSame(NaiveRope(beyond, true, 8, 1, base(100 * std::pow(2.0 * 12 / 6 - 1, 8.0 / 6))),
             RunRope(dynamic, beyond));
  const std::string longrope =
      "style: HALVES theta: 100 rotary_dim: 8 scaling { kind: LONGROPE attention_factor: 1.5 "
      "original_max_position_embeddings: 6 "
      "short_factor: 1 short_factor: 1 short_factor: 1 short_factor: 2 long_factor: 1 long_factor: 3 "
      "long_factor: 4 long_factor: 5 }";
  const std::vector<double> by_short = {1, 1, 1, 2}, by_long = {1, 3, 4, 5};
  ExpectSame(NaiveRope(brief, true, 8, 1.5, [&](int64_t i) { return base(100)(i) / by_short[i]; }),
             RunRope(longrope, brief));
  ExpectSame(NaiveRope(beyond, true, 8, 1.5, [&](int64_t i) { return base(100)(i) / by_long[i]; }),
             RunRope(longrope, beyond));
}

TEST(Rope, MagnitudesAreTheLibrarys) {
  Rope rope;
  RopeScaling& scaling = *rope.mutable_scaling();
  EXPECT_EQ(RopeMagnitude(rope), 1);
  scaling.set_kind(RopeScaling::YARN);
  scaling.set_factor(4);
  EXPECT_DOUBLE_EQ(RopeMagnitude(rope), 0.1 * std::log(4) + 1);
  scaling.set_mscale(0.5);
  scaling.set_mscale_all_dim(2);
  EXPECT_DOUBLE_EQ(RopeMagnitude(rope), (0.05 * std::log(4) + 1) / (0.2 * std::log(4) + 1));
  scaling.set_kind(RopeScaling::LONGROPE);
  scaling.set_original_max_position_embeddings(100);
  EXPECT_DOUBLE_EQ(RopeMagnitude(rope), std::sqrt(1 + std::log(4) / std::log(100)));
  scaling.set_attention_factor(3);
  EXPECT_EQ(RopeMagnitude(rope), 3);
}

// ---- routers

constexpr int64_t kExperts = 6;

// Chosen experts and their weights, by sorting.
std::vector<double> NaiveRoute(const std::vector<double>& logits, const std::vector<double>& correction,
                               const RouterAttrs& attrs) {
  std::vector<double> score = logits;
  if (attrs.score() == MoeAttrs::SIGMOID) {
    for (double& s : score) s = 1 / (1 + std::exp(-s));
  } else if (attrs.score() == MoeAttrs::SOFTMAX_ALL) {
    double sum = 0;
    for (double& s : score) sum += s = std::exp(s);
    for (double& s : score) s /= sum;
  }
  std::vector<double> choice = score;
  for (size_t e = 0; e < correction.size(); ++e) choice[e] += correction[e];
  if (attrs.groups() > 1) {
    const int64_t members = kExperts / attrs.groups();
    std::vector<std::pair<double, int64_t>> goodness;
    for (int64_t g = 0; g < attrs.groups(); ++g) {
      std::vector<double> own(choice.begin() + g * members, choice.begin() + (g + 1) * members);
      std::sort(own.rbegin(), own.rend());
      goodness.emplace_back(-(own[0] + (members > 1 ? own[1] : 0)), g);
    }
    std::sort(goodness.begin(), goodness.end());
    for (int64_t i = attrs.top_groups(); i < attrs.groups(); ++i) {
      for (int64_t m = 0; m < members; ++m) choice[goodness[i].second * members + m] = -HUGE_VAL;
    }
  }
  std::vector<int64_t> order(kExperts);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return choice[a] > choice[b]; });
  std::vector<double> weights(kExperts, 0);
  double sum = 0;
  for (int64_t i = 0; i < attrs.top_k(); ++i) {
    const int64_t e = order[i];
    sum += weights[e] = attrs.score() == MoeAttrs::SOFTMAX_TOP ? std::exp(score[e]) : score[e];
  }
  if (attrs.renormalize() || attrs.score() == MoeAttrs::SOFTMAX_TOP) {
    for (double& w : weights) w /= sum;
  }
  for (double& w : weights) w *= attrs.routed_scale() == 0 ? 1 : attrs.routed_scale();
  return weights;
}

TEST(Router, ChoosesAndWeighsAsTheFormula) {
  for (const char* attrs :
       {"top_k: 2", "top_k: 6 renormalize: true", "top_k: 2 score: SOFTMAX_TOP",
        "top_k: 3 score: SIGMOID renormalize: true routed_scale: 2.5",
        "top_k: 2 score: SIGMOID groups: 3 top_groups: 2", "top_k: 1 score: SIGMOID groups: 6 top_groups: 1",
        "top_k: 3 groups: 2 top_groups: 1 renormalize: true"}) {
    for (bool corrected : {false, true}) {
      SCOPED_TRACE(absl::StrCat(attrs, corrected));
      const auto graph = ParseGraph(
          absl::StrCat("graph t(x: f64[batch, seq, expert=6], c: f64[expert=6]) -> (y: y) {\n  y = router(x",
                       corrected ? ", c" : "", ") {", attrs, "}\n}\n"));
      ASSERT_TRUE(graph.ok()) << graph.status();
      const Values4 x = SingleOp::Random({2, 5, kExperts}, 9), c = SingleOp::Random({kExperts}, 10);
      const RandomTensors reader(1);
      const auto out = Evaluate(
          *graph, StoredParams(reader),
          {{"x", Tensor(DType::kF64, x.shape(), x.data())}, {"c", Tensor(DType::kF64, c.shape(), c.data())}});
      ASSERT_TRUE(out.ok()) << out.status();
      std::vector<double> want;
      for (int64_t token = 0; token < 10; ++token) {
        const std::vector<double> logits(x.data().begin() + token * kExperts,
                                         x.data().begin() + (token + 1) * kExperts);
        const std::vector<double> row = NaiveRoute(logits, corrected ? c.data() : std::vector<double>(),
                                                   graph->FindNode("y")->attrs->router());
        want.insert(want.end(), row.begin(), row.end());
      }
      ExpectSame(Values4(x.shape(), want), Values4(out->at("y").shape(), out->at("y").values()));
    }
  }
}

TEST(Router, RefusesWhatHasNoExperts) {
  for (const auto& [line, reason] :
       {std::pair("router(x) {top_k: 7}", "top_k 7 of 6"),
        std::pair("router(x, x) {top_k: 1}", "corrects no"), std::pair("router(i) {top_k: 1}", "no logits"),
        std::pair("rope(x, x) {style: HALVES}", "positions"), std::pair("rope(x, i) {}", "has a style")}) {
    const auto graph = ParseGraph(absl::StrCat(
        "graph t(x: f64[batch, seq, expert=6], i: i32[batch, seq]) -> (y: y) {\n  y = ", line, "\n}\n"));
    ASSERT_FALSE(graph.ok()) << line;
    EXPECT_THAT(DiagnosticOf(graph.status())->message, HasSubstr(reason)) << line;
  }
}

// ---- stems

TEST(ConvStem, TurnsFramesIntoChannels) {
  const SingleOp op("conv_stem", "conv { strides: 2 low: 1 high: 1 } act: GELU",
                    {{"kernel", "width=3, channels=4 -> d_model=5"}, {"bias", "d_model=5"}},
                    "f64[batch, frames=9, channels=4]");
  const Values4 x = SingleOp::Random({2, 9, 4}, 4), kernel = op.Param("kernel"), bias = op.Param("bias");
  Values4 want({2, 5, 5}, std::vector<double>(50, 0));
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t t = 0; t < 5; ++t) {
      for (int64_t o = 0; o < 5; ++o) {
        double sum = bias.at({o});
        for (int64_t j = 0; j < 3; ++j) {
          const int64_t at = 2 * t + j - 1;
          for (int64_t c = 0; at >= 0 && at < 9 && c < 4; ++c) sum += x.at({b, at, c}) * kernel.at({j, c, o});
        }
        want.at({b, t, o}) = sum * 0.5 * (1 + std::erf(sum / std::sqrt(2)));
      }
    }
  }
  ExpectSame(want, op.Run(x));
}

TEST(ConvStem, TurnsPatchesIntoChannels) {
  const SingleOp op("conv_stem", "conv { strides: 2 strides: 3 low: 0 low: 0 high: 0 high: 0 }",
                    {{"kernel", "height=2, width=3, channels=2 -> d_model=4"}},
                    "f64[batch, rows=4, columns=6, channels=2]");
  const Values4 x = SingleOp::Random({1, 4, 6, 2}, 5), kernel = op.Param("kernel");
  Values4 want({1, 2, 2, 4}, std::vector<double>(16, 0));
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t j = 0; j < 2; ++j) {
      for (int64_t o = 0; o < 4; ++o) {
        for (int64_t h = 0; h < 2; ++h) {
          for (int64_t w = 0; w < 3; ++w) {
            for (int64_t c = 0; c < 2; ++c)
              want.at({0, i, j, o}) += x.at({0, 2 * i + h, 3 * j + w, c}) * kernel.at({h, w, c, o});
          }
        }
      }
    }
  }
  ExpectSame(want, op.Run(x));
}

}  // namespace
}  // namespace twinforge
