#include "cost/score.h"

#include <random>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cost/models.h"

namespace twinforge {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kChips[] = {"v5e", "v5p", "v6e", "tpu7x", "h100"};

Score Scored(const Graph& graph, const std::string& chip, const Workload& workload,
             const Graph* useful = nullptr) {
  absl::StatusOr<Score> score = ScoreGraph(graph, useful, chip, workload);
  EXPECT_TRUE(score.ok()) << score.status();
  return score.ok() ? *std::move(score) : Score();
}

const OpCount& Op(const Score& score, absl::string_view path) {
  for (const OpCount& op : score.ops) {
    if (op.path == path) return op;
  }
  ADD_FAILURE() << "no op " << std::string(path);
  return score.ops.front();
}

// The worked example of docs/cost.md: Llama 3.1 8B on one v6e, 16 sequences of 2,048 cached tokens.
TEST(Ladder, OfTheWorkedExample) {
  const Score score = Scored(MakeModel(Llama8B()), "v6e", {.batch = 16, .context = 2048});
  ASSERT_EQ(score.ladder.size(), 4u);
  const double flops = 257337327616.0;
  EXPECT_NEAR(score.ladder[0].seconds, flops / 3680e12, 1e-12);
  EXPECT_NEAR(score.ladder[1].seconds, flops / 918e12, 1e-12);
  const double row = 2.0 * 256 * 256 * 2 / 918e12;  // both units pass one row
  const double projections = 8 * (16 * 16 + 2 * 16 * 4 + 16 * 16 + 3 * 16 * 56);
  // Per sequence and kv head: scores in nine folds of 256 keys, eight rows; values the same, in 9 x 1 folds.
  const double attention = 16 * 8 * (9 * 8 + 9 * 8);
  const double head = 8 * 16 * 501 * 2;
  EXPECT_NEAR(score.ladder[2].seconds, (32 * (2 * projections + attention) + head) / 2 * row, 1e-9);
  const double bytes =
      2.0 * (8030261248.0 - 128256 * 4096) + 16 * 4096 * 2 + 32 * 16 * 2 * 8 * 128 * 2 * 2049.0;
  EXPECT_NEAR(score.ladder[3].seconds, (bytes - (128 << 20)) / 1638e9, 1e-6) << "VMEM keeps 128 MiB";
  EXPECT_TRUE(score.feasible);
  EXPECT_EQ(score.memory_bytes, int64_t{125} << 28) << "31.25 of 32 GiB are a program's";
  EXPECT_NEAR(score.tokens_per_second, 16 / score.ladder[3].seconds, 1e-9);
}

TEST(Ladder, RoundsNothingAway) {
  const Score score = Scored(MakeModel({}), "v5e", {.batch = 1, .context = 3});
  EXPECT_NEAR(score.ladder[3].seconds, 0, 1e-3);
  EXPECT_GT(score.ladder[0].seconds, 0);
}

TEST(Ladder, OfSmallModelsNeedsNoMemoryTraffic) {
  // 100 kB of parameters and cache stay in VMEM between steps.
  const Score small = Scored(MakeModel({}), "v6e", {.batch = 1, .context = 16});
  for (const OpCount& op : small.ops) EXPECT_EQ(op.memory_bytes, 0) << op.path;
  const Score large = Scored(MakeModel({.vocab = 1 << 21}), "v6e", {.batch = 1, .context = 16});
  EXPECT_GE(Op(large, "lm_head").memory_bytes, Op(large, "lm_head").weight_bytes);
}

// 128 MiB of VMEM may hold what the step before left there, whatever that is: no more is spared, and products
// still take their time.
TEST(Ladder, SparesWhatOnChipMemoryHolds) {
  const double vmem = (128 << 20) / 1638e9;
  const Graph graph = MakeModel({.vocab = 1 << 21});
  const Score decode = Scored(graph, "v6e", {.batch = 1, .context = 16});
  double fetched = 0;
  for (const OpCount& op : decode.ops) fetched += static_cast<double>(op.memory_bytes) / 1638e9;
  EXPECT_NEAR(decode.ladder[3].seconds, fetched - vmem, 1e-3 * vmem);
  // Just beyond VMEM: the products alone are left, where all-or-nothing would have all bytes cross.
  const Score barely = Scored(MakeModel({.vocab = 600000}), "v6e", {.batch = 1, .context = 16});
  EXPECT_GT(barely.parameter_bytes, 128 << 20);
  EXPECT_NEAR(barely.ladder[3].seconds / barely.ladder[2].seconds, 1, 1e-9);
  const Score prefill = Scored(graph, "v6e", {.phase = Phase::kPrefill, .batch = 8, .context = 4096});
  EXPECT_GE(prefill.ladder[3].seconds, prefill.ladder[2].seconds);
}

TEST(Ladder, TakesR0FromTheSource) {
  const Graph source = MakeModel({.heads = 3, .kv_heads = 3, .head_dim = 80, .vocab = 300});
  const Graph twin = MakeModel(
      {.heads = Sized(4, 3), .kv_heads = Sized(4, 3), .head_dim = Sized(128, 80), .vocab = Sized(384, 300)});
  const Workload workload = {.phase = Phase::kPrefill, .batch = 4, .context = 512};
  const Score before = Scored(source, "v5e", workload);
  const Score after = Scored(twin, "v5e", workload, &source);
  EXPECT_NEAR(before.ladder[0].seconds / after.ladder[0].seconds, 1, 1e-12);
  EXPECT_EQ(Op(before, "layers.0.attn").useful_flops, Op(after, "layers.0.attn").useful_flops);
  EXPECT_GT(Op(after, "layers.0.attn").issued_flops, Op(before, "layers.0.attn").issued_flops);
  EXPECT_GE(after.ladder[2].seconds, before.ladder[2].seconds);
}

TEST(Ladder, KeepsTheSourcesWorkWhereTheTwinLostANode) {
  const Graph source = MakeModel({.layers = 2});
  const Graph twin = MakeModel({.layers = 1});
  const Score before = Scored(source, "v5e", {.batch = 4});
  const Score after = Scored(twin, "v5e", {.batch = 4}, &source);
  EXPECT_NEAR(before.ladder[0].seconds, after.ladder[0].seconds, 1e-18);
  EXPECT_EQ(Op(after, "layers.1.mlp").note, "only in the source");
}

TEST(Types, NarrowWeightsMoveFewerBytesAndAreConverted) {
  ModelSizes sizes = Llama8B();
  const Score wide = Scored(MakeModel(sizes), "v6e", {.batch = 8});
  sizes.kernel_dtype = DType::kF8E4M3;
  const Score narrow = Scored(MakeModel(sizes), "v6e", {.batch = 8});
  EXPECT_NEAR(narrow.ladder[1].seconds / wide.ladder[1].seconds, 1, 1e-9)
      << "no faster multiplication of e4m3 on v6e";
  EXPECT_LT(narrow.ladder[3].seconds, 0.6 * wide.ladder[3].seconds);
  EXPECT_THAT(Op(narrow, "layers.0.mlp").note, HasSubstr("bf16 from f8_e4m3"));
  EXPECT_THAT(Op(wide, "layers.0.mlp").note, HasSubstr("bf16"));
}

TEST(Memory, ThatDoesNotFitIsAnAnswer) {
  const Graph graph = MakeModel(Llama8B());
  const Score score = Scored(graph, "v5e", {.batch = 8, .context = 8192});
  EXPECT_FALSE(score.feasible);
  EXPECT_EQ(score.tokens_per_second, 0);
  EXPECT_THAT(score.shortfall, HasSubstr("2 shards would do"));
  const Score sharded = Scored(graph, "v5e", {.batch = 8, .context = 8192, .shards = 2});
  EXPECT_TRUE(sharded.feasible);
  EXPECT_THAT(sharded.shortfall, IsEmpty());
  EXPECT_LT(sharded.parameter_bytes + sharded.cache_bytes, sharded.memory_bytes);
}

TEST(Memory, PadsOnTpusAndNotOnGpus) {
  const Graph graph = MakeModel({.d_ff = 200, .vocab = 1 << 21});
  const Score tpu = Scored(graph, "v6e", {});
  const Score gpu = Scored(graph, "h100", {});
  EXPECT_EQ(Op(gpu, "layers.0.mlp").memory_bytes, 3 * 64 * 200 * 2);
  EXPECT_EQ(Op(tpu, "layers.0.mlp").memory_bytes, 3 * 64 * 256 * 2) << "200 takes two rows of lanes";
}

TEST(Refusals, AreTyped) {
  const Graph graph = MakeModel({});
  const auto code = [&](const Graph& g, const std::string& chip, const Workload& workload) {
    const std::optional<Diagnostic> diagnostic =
        DiagnosticOf(ScoreGraph(g, nullptr, chip, workload).status());
    return diagnostic ? diagnostic->code : 0;
  };
  EXPECT_EQ(code(graph, "v9x", {}), 1701);
  EXPECT_EQ(code(graph, "v6e", {.shards = 3}), 1702);
  EXPECT_EQ(code(graph, "v6e", {.batch = 0}), 1703);
  EXPECT_EQ(code(MakeModel({.kernel_dtype = DType::kF64}), "v6e", {}), 1704);
  EXPECT_EQ(code(MakeModel({.causal = false}), "v6e", {.phase = Phase::kDecode}), 1705);
  EXPECT_EQ(code(graph, "v6e", {.batch = 1 << 30, .context = 1 << 30}), 1707);
}

ModelSizes Random(std::mt19937& random) {
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  const auto padded = [&](int64_t size) {
    return pick(0, 2) > 0 ? Sized(size) : Sized(size, std::max<int64_t>(1, size - pick(0, 3)));
  };
  ModelSizes s;
  s.layers = pick(1, 3);
  s.d_model = padded(pick(2, 600));
  const int64_t kv = pick(1, 3);
  s.kv_heads = 4 * kv;
  s.heads = 4 * kv * pick(1, 4);
  s.head_dim = padded(2 * pick(2, 130));
  s.d_ff = padded(4 * pick(1, 400));
  s.vocab = padded(4 * pick(2, 30000));
  s.window = pick(0, 1) * pick(1, 300);
  s.causal = pick(0, 5) > 0;
  s.tied = pick(0, 1) > 0;
  const DType dtypes[] = {DType::kBF16, DType::kF32, DType::kF8E4M3, DType::kF8E5M2, DType::kI8, DType::kF16};
  s.dtype = dtypes[pick(0, 1)];
  s.kernel_dtype = dtypes[pick(0, 5)];
  if (pick(0, 2) == 0) {
    s.members = pick(1, 3);
    s.experts = s.members * pick(1, 20);
    s.top_k = pick(1, s.experts);
    s.shared_ff = 4 * pick(0, 50);
  }
  if (pick(0, 3) == 0) {
    s.kv_lora = pick(1, 512);
    s.q_lora = pick(1, 300);
  }
  return s;
}

// The law of the ladder: rungs and each op's share never decrease, and the shares add up to the last bit.
void CheckLadder(const Score& score) {
  ASSERT_EQ(score.ladder.size(), 4u);
  ASSERT_EQ(score.attribution.size(), score.ops.size());
  for (size_t rung = 0; rung < 4; ++rung) {
    const double step = score.ladder[rung].seconds - (rung > 0 ? score.ladder[rung - 1].seconds : 0);
    double forward = 0;
    double backward = 0;
    for (size_t i = 0; i < score.ops.size(); ++i) {
      ASSERT_GE(score.attribution[i][rung], 0) << score.ops[i].path;
      forward += score.attribution[i][rung];
      backward += score.attribution[score.ops.size() - 1 - i][rung];
    }
    ASSERT_EQ(forward, step);
    ASSERT_EQ(backward, step);
    ASSERT_EQ(score.ladder[rung].evidence, 'B');
  }
  ASSERT_GT(score.ladder[0].seconds, 0);
}

TEST(Law, HoldsForRandomModelsChipsAndSteps) {
  std::mt19937 random(20240611);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int scored = 0;
  for (int i = 0; i < 600; ++i) {
    const ModelSizes sizes = Random(random);
    const Graph graph = MakeModel(sizes);
    const Workload workload = {
        .phase = pick(0, 1) > 0 && (sizes.causal || sizes.kv_lora > 0) ? Phase::kDecode : Phase::kPrefill,
        .batch = pick(1, 70),
        .context = pick(1, 3000),
        .shards = int64_t{1} << pick(0, 2),
        .routing = pick(0, 1) > 0 ? Routing::kSame : Routing::kSpread};
    for (const char* chip : kChips) {
      const Score score = Scored(graph, chip, workload, pick(0, 1) > 0 ? &graph : nullptr);
      CheckLadder(score);
      for (const OpCount& op : score.ops) {
        ASSERT_LE(op.useful_flops, op.issued_flops) << op.path << " model " << i;
        ASSERT_LE(op.issued_flops, op.tile_flops) << op.path << " model " << i;
      }
      ++scored;
    }
  }
  EXPECT_EQ(scored, 3000);
}

TEST(Law, MoreContextBatchAndLayersNeverTakeLess) {
  std::mt19937 random(5);
  for (int i = 0; i < 60; ++i) {
    ModelSizes sizes = Random(random);
    sizes.causal = true;
    const Graph graph = MakeModel(sizes);
    ++sizes.layers;
    const Graph deeper = MakeModel(sizes);
    for (const Phase phase : {Phase::kPrefill, Phase::kDecode}) {
      const Workload base = {.phase = phase, .batch = 1 + i, .context = 10 + 7 * i};
      Workload wider = base;
      wider.batch += 1;
      Workload longer = base;
      longer.context += 1;
      const Score score = Scored(graph, "v5e", base);
      for (const Score& more :
           {Scored(graph, "v5e", wider), Scored(graph, "v5e", longer), Scored(deeper, "v5e", base)}) {
        for (int rung = 0; rung < 4; ++rung) {
          ASSERT_GE(more.ladder[rung].seconds, score.ladder[rung].seconds * (1 - 1e-12))
              << rung << " model " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace twinforge
