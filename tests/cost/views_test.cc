#include "cost/views.h"

#include <string>
#include <vector>

#include "cost/calibration.h"
#include "cost/chip_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cost/models.h"

namespace twinforge {
namespace {

struct Viewed {
  Forecast forecast;
  LadderViews views;
};

Viewed View(const Graph& graph, const std::string& chip, const Workload& workload,
            const std::string& stack = "", const Graph* useful = nullptr) {
  Viewed viewed;
  absl::StatusOr<Forecast> forecast = ForecastStep(graph, useful, chip, workload, stack, "bf16");
  EXPECT_TRUE(forecast.ok()) << forecast.status();
  viewed.forecast = *std::move(forecast);
  absl::StatusOr<LadderViews> views = ViewsOf(viewed.forecast, chip, stack, "bf16");
  EXPECT_TRUE(views.ok()) << views.status();
  viewed.views = *std::move(views);
  return viewed;
}

double Last(const Viewed& viewed) { return viewed.forecast.score.ladder.back().seconds; }

ModelSizes Sparse() {
  return {.layers = 3,
          .d_model = 1024,
          .heads = 8,
          .kv_heads = 8,
          .head_dim = 128,
          .d_ff = 768,
          .vocab = 32000,
          .experts = 16,
          .top_k = 2};
}

// What every view owes to the ladder, whatever the model, chip and step.
void ExpectConsistent(const Viewed& viewed) {
  const Forecast& forecast = viewed.forecast;
  const std::vector<RungRow>& ladder = forecast.score.ladder;
  ASSERT_EQ(viewed.views.rungs.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    const RungView& view = viewed.views.rungs[i];
    EXPECT_EQ(view.rung, ladder[4 + i].rung);
    EXPECT_EQ(view.seconds.mid, ladder[4 + i].seconds);
    EXPECT_LE(forecast.bound, view.seconds.low);
    EXPECT_LE(view.seconds.low, view.seconds.mid);
    EXPECT_LE(view.seconds.mid, view.seconds.high);
    EXPECT_LE(view.envelope.low, view.envelope.mid);
    EXPECT_LE(view.envelope.mid, view.envelope.high);
    if (i == 0) continue;
    EXPECT_LE(viewed.views.rungs[i - 1].seconds.low, view.seconds.low);
    EXPECT_LE(viewed.views.rungs[i - 1].seconds.high, view.seconds.high);
  }
  const RungView& last = viewed.views.rungs.back();
  EXPECT_EQ(last.seconds.low, forecast.seconds.low);
  EXPECT_EQ(last.seconds.high, forecast.seconds.high);
  EXPECT_EQ(last.envelope.low, forecast.envelope.low);
  EXPECT_EQ(last.envelope.high, forecast.envelope.high);
  EXPECT_EQ(last.certifiable, forecast.certifiable);
  ASSERT_EQ(last.doubts.size(), forecast.doubts.size());
  for (size_t i = 0; i < last.doubts.size(); ++i) {
    EXPECT_EQ(last.doubts[i].constant, forecast.doubts[i].constant);
    EXPECT_NEAR(last.doubts[i].share, forecast.doubts[i].share, 1e-9);
  }
  ASSERT_EQ(viewed.views.removals.size(), 8u);
  for (const Removal& removal : viewed.views.removals) {
    EXPECT_GE(removal.seconds, 0) << removal.rung;
    EXPECT_LE(removal.seconds, Last(viewed)) << removal.rung;
  }
  MappingGap sum;
  for (size_t i = 0; i + 1 < viewed.views.gaps.size(); ++i) {
    sum.r0 += viewed.views.gaps[i].r0;
    sum.r1 += viewed.views.gaps[i].r1;
    sum.r5 += viewed.views.gaps[i].r5;
  }
  const MappingGap& all = viewed.views.gaps.back();
  EXPECT_EQ(all.op, "step");
  EXPECT_EQ(all.r0, ladder[0].seconds) << "sums of the ladder are exact";
  EXPECT_EQ(all.r1, ladder[1].seconds);
  EXPECT_EQ(all.r5, ladder[5].seconds);
  EXPECT_EQ(sum.r5, all.r5);
  EXPECT_EQ(sum.r1, all.r1);
}

TEST(Views, AgreeWithTheLadder) {
  const Graph dense = MakeModel(Llama8B()), sparse = MakeModel(Sparse());
  for (const char* chip : {"v5e", "v6e", "h100_sxm"}) {
    for (const Phase phase : {Phase::kDecode, Phase::kPrefill}) {
      for (const int64_t shards : {1, 8}) {
        SCOPED_TRACE(testing::Message() << chip << " " << static_cast<int>(phase) << " " << shards);
        const Workload workload{.phase = phase, .batch = 8, .context = 512, .shards = shards};
        if (shards == 8) ExpectConsistent(View(dense, chip, workload, "vllm"));
        ExpectConsistent(View(sparse, chip, workload));
      }
    }
  }
}

double Without(const Viewed& viewed, size_t rung) { return viewed.views.removals[rung - 1].seconds; }

TEST(Removal, OfLaunchesLeavesTheRest) {
  const Viewed viewed = View(MakeModel(Llama8B()), "h100_sxm", {.batch = 16, .context = 2048}, "vllm");
  const FittedConstants fitted =
      ConstantsFor(ShippedCalibration(), "vllm", **FindIn(ShippedChips(), "h100_sxm"), "bf16");
  // 32 attentions, 32 feed-forwards and the head have products.
  const double launches = 65 * Of(fitted.mid, Constant::kLaunch) + Of(fitted.mid, Constant::kStep);
  ASSERT_GT(launches, 0);
  EXPECT_NEAR(Last(viewed) - Without(viewed, 6), launches, 1e-9 * Last(viewed));
  EXPECT_NEAR(Last(viewed) - Without(viewed, 8), 16 * Of(fitted.mid, Constant::kRequest),
              1e-9 * Last(viewed));
}

TEST(Removal, OfWhatIsNotThereChangesNothing) {
  const Viewed alone = View(MakeModel(Llama8B()), "v6e", {.batch = 16, .context = 2048});
  EXPECT_NEAR(Without(alone, 5), Last(alone), 1e-12 * Last(alone)) << "one device exchanges nothing";
  EXPECT_NEAR(Without(alone, 7), Last(alone), 1e-12 * Last(alone)) << "no source says anything of clocks";
}

TEST(Removal, SeesWhatMemoryHides) {
  const Viewed viewed = View(MakeModel(Llama8B()), "v6e", {.batch = 16, .context = 2048});
  // Memory binds by a factor of 34 (docs/cost.md); without it shapes do.
  EXPECT_LT(Without(viewed, 3), 0.3 * Last(viewed));
  EXPECT_GT(Without(viewed, 2), 0.8 * Last(viewed)) << "and shapes alone are hidden behind it";
  const Viewed prefill = View(MakeModel(Llama8B()), "v6e", {.phase = Phase::kPrefill, .context = 2048});
  EXPECT_GT(Without(prefill, 3), 0.5 * Last(prefill)) << "in prefill it is the other way round";
}

TEST(MappingGap, OfTheWorkedExample) {
  const Viewed viewed = View(MakeModel(Llama8B()), "v6e", {.batch = 16, .context = 2048});
  const MappingGap& all = viewed.views.gaps.back();
  EXPECT_NEAR(all.r1 / all.r0, 3680.0 / 918, 1e-9) << "bf16 beside int4";
  EXPECT_GT(all.r5 / all.r1, 34);
}

}  // namespace
}  // namespace twinforge
