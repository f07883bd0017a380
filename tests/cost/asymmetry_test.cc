#include "cost/asymmetry.h"

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "gtest/gtest.h"
#include "tests/cost/models.h"

namespace twinforge {
namespace {

constexpr const char* kTpus[] = {"v5e", "v5p", "v6e", "tpu7x"};
constexpr const char* kGpus[] = {"h100_sxm", "h200_sxm", "a100_sxm"};

ModelSizes Narrow() {
  return {
      .layers = 4, .d_model = 2048, .heads = 16, .kv_heads = 8, .head_dim = 64, .d_ff = 5632, .vocab = 50260};
}

// A source and what a padding recipe makes of it.
struct Pair {
  std::string name;
  Graph source;
  Graph twin;
};

std::vector<Pair> Pairs() {
  std::vector<Pair> pairs;
  const ModelSizes narrow = Narrow();
  ModelSizes heads = narrow, vocab = narrow, ffn = narrow;
  heads.head_dim = {128, 64};
  vocab.vocab = {50304, 50260};
  ffn.d_ff = {6144, 5632};
  pairs.push_back({"head_dim", MakeModel(narrow), MakeModel(heads)});
  pairs.push_back({"vocab", MakeModel(narrow), MakeModel(vocab)});
  pairs.push_back({"ffn", MakeModel(narrow), MakeModel(ffn)});
  ModelSizes experts = narrow;
  experts.experts = 16;
  experts.d_ff = 768;
  ModelSizes grouped = experts;
  grouped.members = 2;
  pairs.push_back({"experts", MakeModel(experts), MakeModel(grouped)});
  return pairs;
}

Asymmetry Of(const Pair& pair, const std::string& chip, const std::string& against,
             const Workload& workload) {
  absl::StatusOr<Asymmetry> a = AsymmetryOf(pair.source, pair.twin, chip, against, workload, "", "bf16");
  EXPECT_TRUE(a.ok()) << pair.name << ": " << a.status();
  return a.ok() ? *std::move(a) : Asymmetry();
}

StepGain GainOf(const Pair& pair, const std::string& chip, const Workload& workload) {
  absl::StatusOr<StepGain> gain = StepGain::Of(pair.source, pair.twin, chip, workload, "", "bf16");
  EXPECT_TRUE(gain.ok()) << gain.status();
  return *std::move(gain);
}

std::vector<Workload> Steps() {
  return {{.phase = Phase::kDecode, .batch = 8, .context = 2048},
          {.phase = Phase::kDecode, .batch = 64, .context = 512, .shards = 4},
          {.phase = Phase::kPrefill, .batch = 2, .context = 8192}};
}

TEST(Asymmetry, AgainstTheSameChipIsExactlyOne) {
  for (const Pair& pair : Pairs()) {
    for (const char* chip : {"v5e", "v6e", "h100_sxm"}) {
      for (const Workload& step : Steps()) {
        const Asymmetry a = Of(pair, chip, chip, step);
        EXPECT_EQ(a.ratio.low, 1);
        EXPECT_EQ(a.ratio.mid, 1);
        EXPECT_EQ(a.ratio.high, 1);
        EXPECT_EQ(a.bound, 1);
        EXPECT_FALSE(a.claimed);
        for (const AsymmetryRung& rung : a.rungs) {
          EXPECT_EQ(rung.ratio, 1) << rung.rung;
          EXPECT_EQ(rung.factor, 1) << rung.rung;
        }
      }
    }
  }
  // An alias is the same chip.
  EXPECT_EQ(Of(Pairs()[0], "h100", "h100_sxm", Steps()[0]).ratio.high, 1);
}

TEST(Asymmetry, OfNoChangeIsExactlyOne) {
  for (Pair& pair : Pairs()) {
    pair.twin = pair.source;
    for (const Workload& step : Steps()) {
      const Asymmetry a = Of(pair, "v6e", "h100_sxm", step);
      EXPECT_EQ(a.ratio.low, 1);
      EXPECT_EQ(a.ratio.mid, 1);
      EXPECT_EQ(a.ratio.high, 1);
      EXPECT_FALSE(a.claimed);
      EXPECT_TRUE(a.constants.empty());
      for (const AsymmetryRung& rung : a.rungs) EXPECT_EQ(rung.factor, 1) << rung.rung;
    }
  }
}

TEST(Asymmetry, FactorsMultiplyToTheWhole) {
  std::mt19937 random(5);
  for (const Pair& pair : Pairs()) {
    for (const char* tpu : kTpus) {
      const char* gpu = kGpus[random() % 3];
      Workload step = Steps()[random() % 3];
      step.batch = 1 + random() % 100;
      const Asymmetry a = Of(pair, tpu, gpu, step);
      ASSERT_EQ(a.rungs.size(), 9u);
      double product = 1;
      for (const AsymmetryRung& rung : a.rungs) {
        product *= rung.factor;
        EXPECT_DOUBLE_EQ(rung.ratio, rung.on_chip / rung.on_against);
      }
      EXPECT_NEAR(product / a.ratio.mid, 1, 1e-9) << pair.name << " " << tpu << " " << gpu;
      EXPECT_LE(a.ratio.low, a.ratio.mid);
      EXPECT_LE(a.ratio.mid, a.ratio.high);
      EXPECT_EQ(a.claimed, a.ratio.low > 1 || a.ratio.high < 1);
      EXPECT_LE(a.constants.size(), 10u);
    }
  }
}

TEST(Asymmetry, TheOtherWayRoundIsItsInverse) {
  for (const Pair& pair : Pairs()) {
    for (const Workload& step : Steps()) {
      const Asymmetry there = Of(pair, "v6e", "h100_sxm", step);
      const Asymmetry back = Of(pair, "h100_sxm", "v6e", step);
      EXPECT_NEAR(there.ratio.mid * back.ratio.mid, 1, 1e-12);
      EXPECT_NEAR(there.ratio.low * back.ratio.high, 1, 1e-9);
      EXPECT_NEAR(there.ratio.high * back.ratio.low, 1, 1e-9);
      EXPECT_EQ(there.claimed, back.claimed);
    }
  }
}

// A wide head costs a GPU's tensor cores all of its zeros; an array of 256 x 256 had room for them.
TEST(Asymmetry, PaddedHeadsFitTheSystolicArray) {
  const Asymmetry a =
      Of(Pairs()[0], "v6e", "h100_sxm", {.phase = Phase::kPrefill, .batch = 1, .context = 16384});
  EXPECT_GT(a.rungs[2].on_chip, a.rungs[2].on_against);
  EXPECT_GT(a.rungs[2].ratio, 1.1);
  EXPECT_GT(a.bound, 1);
}

// Constants move source and twin together: the doubt of the ratio is a part of that of the times.
TEST(StepGain, MovesConstantsThroughBoth) {
  for (const Pair& pair : Pairs()) {
    for (const char* chip : {"v6e", "h100_sxm"}) {
      const StepGain gain = GainOf(pair, chip, Steps()[0]);
      const Interval ratio = gain.ratio();
      EXPECT_GT(ratio.low, gain.source().seconds.low / gain.twin().seconds.high) << pair.name << " " << chip;
      EXPECT_LT(ratio.high, gain.source().seconds.high / gain.twin().seconds.low) << pair.name << " " << chip;
      for (size_t knob = 0; knob < gain.knobs().size(); ++knob) EXPECT_EQ(gain.LogShift(knob, 0), 0);
      double sum = 0;
      for (const double part : gain.LogParts()) sum += part;
      EXPECT_NEAR(sum, std::log(gain.Last()), 1e-12);
    }
  }
}

// Wider heads read a larger cache: what the cache costs decides the ratio, and slower reading makes it worse.
TEST(StepGain, FallsWhereWhatTheTwinNeedsMoreOfIsDearer) {
  const StepGain gain = GainOf(Pairs()[0], "v6e", {.batch = 64, .context = 8192});
  ASSERT_LT(gain.Last(), 1);
  for (size_t knob = 0; knob < gain.knobs().size(); ++knob) {
    const std::string& name = gain.knobs()[knob].name;
    if (name == "cache_read") {
      EXPECT_LT(gain.LogShift(knob, 0.5), 0);
    }
    if (name == "step") {
      EXPECT_GT(gain.LogShift(knob, 0.5), 0);
    }
  }
}

TEST(StepGain, JoinsSwingsByRootOfSquares) {
  const Interval joined = JoinSwings(2, {{-0.3, 0.1}, {0.2, -0.4}, {0, 0}});
  EXPECT_DOUBLE_EQ(joined.low, 2 * std::exp(-0.5));
  EXPECT_DOUBLE_EQ(joined.mid, 2);
  EXPECT_DOUBLE_EQ(joined.high, 2 * std::exp(std::sqrt(0.05)));
}

// The constant that is named, moved as far as is said, takes the ratio to one, and a bit less does not.
TEST(Asymmetry, IsOverturnedByWhatItSays) {
  int found = 0;
  for (const Pair& pair : Pairs()) {
    for (const Workload& step : Steps()) {
      const StepGain chip = GainOf(pair, "v6e", step), against = GainOf(pair, "h100_sxm", step);
      const Asymmetry a = CompareGains(chip, against);
      if (!a.claimed) {
        EXPECT_FALSE(a.includes_one.found || a.turns_sign.found);
        EXPECT_NE(OverturnText(a).find("nothing is claimed"), std::string::npos);
        continue;
      }
      EXPECT_TRUE(a.includes_one.found || !a.turns_sign.found);
      for (const Overturn& overturn : {a.includes_one, a.turns_sign}) {
        if (!overturn.found) continue;
        ++found;
        EXPECT_NE(OverturnText(a).find(overturn.constant), std::string::npos);
        const bool first = overturn.chip == a.chip;
        const StepGain& gain = first ? chip : against;
        size_t knob = 0;
        while (gain.knobs()[knob].name != overturn.constant) ++knob;
        const double shift = (first ? 1 : -1) * gain.LogShift(knob, std::log(overturn.times));
        EXPECT_LE(std::abs(std::log(overturn.times)), kNinetyNine * gain.knobs()[knob].spread + 1e-9);
        EXPECT_LT(std::log(a.ratio.mid) * shift, 0) << "towards one";
      }
      if (!a.turns_sign.found) continue;
      const bool first = a.turns_sign.chip == a.chip;
      const StepGain& gain = first ? chip : against;
      size_t knob = 0;
      while (gain.knobs()[knob].name != a.turns_sign.constant) ++knob;
      const double shift = (first ? 1 : -1) * gain.LogShift(knob, std::log(a.turns_sign.times));
      EXPECT_NEAR(std::log(a.ratio.mid) + shift, 0, 1e-6);
    }
  }
  EXPECT_GT(found, 0);
}

TEST(Asymmetry, KeepsDenseAndSparseRatesApart) {
  const Asymmetry a = Of(Pairs()[0], "v6e", "h100_sxm", Steps()[2]);
  bool seen = false;
  for (const PublishedRate& rate : a.rates) {
    if (rate.dtype != "bf16") continue;
    seen = true;
    EXPECT_EQ(rate.dense, 989e12);
    EXPECT_EQ(rate.sparse, 1979e12);
  }
  EXPECT_TRUE(seen);
  const StepGain gain = GainOf(Pairs()[0], "h100_sxm", Steps()[2]);
  double flops = 0;
  for (const OpCount& op : gain.source().score.ops) flops += static_cast<double>(op.useful_flops);
  EXPECT_NEAR(gain.source().score.ladder[1].seconds, flops / 989e12, 1e-9 * flops / 989e12);
}

TEST(Asymmetry, RefusesWithACode) {
  const Pair pair = Pairs()[0];
  const auto code = [&](const std::string& chip, const std::string& against, const Workload& step,
                        const std::string& stack = "") {
    const auto a = AsymmetryOf(pair.source, pair.twin, chip, against, step, stack, "bf16");
    return a.ok() ? 0 : DiagnosticOf(a.status())->code;
  };
  EXPECT_EQ(code("v99", "h100", {}), 1701);
  EXPECT_EQ(code("v6e", "h1000", {}), 1701);
  EXPECT_EQ(code("v6e", "h100", {.shards = 3}), 1702);
  EXPECT_EQ(code("v6e", "h100", {}, "nobody"), 1711);
  EXPECT_EQ(code("v6e", "h100", {.batch = 4096, .context = 1 << 20}), 1712);
}

}  // namespace
}  // namespace twinforge
