// Training steps: what a backward pass and an optimiser add, by hand, and beside published runs.
#include <gtest/gtest.h>

#include "base/diagnostic.h"
#include "cost/counts.h"
#include "cost/forecast.h"
#include "cost/terms.h"
#include "tests/cost/models.h"

namespace twinforge {
namespace {

constexpr Workload kStep = {
    .phase = Phase::kPrefill, .batch = 8, .context = 64, .training = Training{.rematerialise = false}};

Score Scored(const Graph& graph, const Workload& workload) {
  absl::StatusOr<Score> score = ScoreGraph(graph, nullptr, "v6e", workload);
  EXPECT_TRUE(score.ok()) << score.status();
  return score.ok() ? *std::move(score) : Score();
}

int64_t Flops(const Score& score) {
  int64_t flops = 0;
  for (const OpCount& op : score.ops) flops += op.useful_flops;
  return flops;
}

TEST(Training, NeedsThreeTimesTheForwardPass) {
  // An encoder computes all logits, as training does.
  for (const bool causal : {false, true}) {
    const Graph graph = MakeModel({.layers = 2, .causal = causal});
    Workload forward = kStep;
    forward.training.reset();
    const int64_t once = Flops(Scored(graph, forward));
    const int64_t all = Flops(Scored(graph, kStep));
    const int64_t head = 2 * 64 * 320 * (8 * 64 - 8);  // logits of other places than the last
    EXPECT_EQ(all, 3 * (once + (causal ? head : 0)));
    Workload again = kStep;
    again.training->rematerialise = true;
    EXPECT_EQ(Flops(Scored(graph, again)), all) << "what is computed again is no useful work";
  }
}

TEST(Training, ComputesAgainForLessMemory) {
  const Graph graph = MakeModel({.layers = 4});
  Workload again = kStep;
  again.training->rematerialise = true;
  const Score kept = Scored(graph, kStep);
  const Score recomputed = Scored(graph, again);
  EXPECT_LT(recomputed.cache_bytes, kept.cache_bytes);
  EXPECT_GT(recomputed.ladder[2].seconds, kept.ladder[2].seconds);
  EXPECT_EQ(recomputed.parameter_bytes, kept.parameter_bytes);
}

// One input to each layer, one to the head: of bf16 rows of 64.
TEST(Training, RunsLayersAgainFromTheirInput) {
  const Graph graph = MakeModel({.layers = 4});
  Workload again = kStep;
  again.training->rematerialise = true;
  const StepCount step = *CountStep(graph, again);
  int64_t bytes = 0;
  for (const NodeUse& use : step.nodes) {
    for (const StoredArray& array : step.kinds[use.kind].cache_kept)
      bytes += CompactBytes(array.dtype, array.shape).value();
  }
  EXPECT_EQ(bytes, (4 + 1) * 8 * 64 * 64 * 2);
}

TEST(Training, KeepsSixteenBytesOfAParameterSharedByDataParallelDevices) {
  const Graph graph = MakeModel(Llama8B());
  const int64_t parameters = 8030261248;
  for (const int64_t dp : {1, 4}) {
    Workload workload = kStep;
    workload.batch = 4;
    workload.dp = dp;
    // bf16 weight and gradient, f32 master weight and two moments; each vector in tiles of its own.
    const double bytes = static_cast<double>(Scored(graph, workload).parameter_bytes);
    EXPECT_NEAR(bytes / (16.0 * static_cast<double>(parameters) / static_cast<double>(dp)), 1, 1e-3);
  }
}

TEST(Training, UpdatesATiedTableOnce) {
  const auto traffic = [](bool tied) {
    int64_t bytes = 0;
    for (const OpCount& op : Scored(MakeModel({.vocab = 1 << 20, .tied = tied}), kStep).ops)
      bytes += op.memory_bytes;
    return bytes;
  };
  const int64_t table = int64_t{64} << 20;
  EXPECT_NEAR(static_cast<double>(traffic(false) - traffic(true)), 26.0 * static_cast<double>(table), 1e6);
}

TEST(Training, HasNoCache) {
  const Graph graph = MakeModel({});
  Workload decode = kStep;
  decode.phase = Phase::kDecode;
  EXPECT_EQ(DiagnosticOf(CountStep(graph, decode).status())->code, 1703);
}

// MaxText on v6e, FSDP over 128 chips, 4 sequences of 8,192 tokens a chip: 4.602 s a step (AI-Hypercomputer/
// tpu-recipes). No training row was fitted on.
TEST(Training, OfAPublishedRunLiesInTheInterval) {
  const Workload workload = {.phase = Phase::kPrefill,
                             .batch = 512,
                             .context = 8192,
                             .dp = 128,
                             .training = Training{.rematerialise = true}};
  const absl::StatusOr<Forecast> forecast =
      ForecastStep(MakeModel(Llama8B()), nullptr, "v6e", workload, "", "bf16");
  ASSERT_TRUE(forecast.ok()) << forecast.status();
  EXPECT_LT(forecast->bound, 4.602);
  EXPECT_LT(forecast->seconds.low, 4.602);
  EXPECT_GT(forecast->seconds.high, 4.602);
}

}  // namespace
}  // namespace twinforge
