#include "cost/counts.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/rewriter.h"
#include "tests/cost/models.h"

namespace twinforge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

StepCount Count(const Graph& graph, const Workload& workload) {
  absl::StatusOr<StepCount> step = CountStep(graph, workload);
  EXPECT_TRUE(step.ok()) << step.status();
  return step.ok() ? *std::move(step) : StepCount();
}

// A node's counts, with only those parameters in `stored` that no earlier node has.
NodeCount At(const StepCount& step, NodeId id) {
  NodeCount node = step.KindOf(id);
  std::vector<std::vector<StoredArray>> kept;
  for (size_t i = 0; i < node.stored.size(); ++i) {
    if ((step.nodes[id].keeps >> i & 1) != 0) kept.push_back(node.stored[i]);
  }
  node.stored = kept;
  return node;
}

NodeCount At(const Graph& graph, const StepCount& step, absl::string_view path) {
  const Node* node = graph.FindNode(path);
  EXPECT_NE(node, nullptr) << std::string(path);
  return At(step, node->id);
}

int64_t Flops(const NodeCount& node) {
  int64_t macs = 0;
  for (const Product& product : node.products) macs += product.useful.value();
  return 2 * macs;
}

int64_t Bytes(const std::vector<StoredArray>& arrays) {
  Exact bytes;
  for (const StoredArray& array : arrays) bytes += CompactBytes(array.dtype, array.shape);
  return bytes.value();
}

int64_t Bytes(const std::vector<std::vector<StoredArray>>& parameters) {
  int64_t bytes = 0;
  for (const std::vector<StoredArray>& arrays : parameters) bytes += Bytes(arrays);
  return bytes;
}

Diagnostic Refusal(const Graph& graph, const Workload& workload) {
  const absl::Status status = CountStep(graph, workload).status();
  EXPECT_TRUE(DiagnosticOf(status).has_value()) << status;
  return DiagnosticOf(status).value_or(Diagnostic());
}

TEST(CausalPairs, EqualCountingThemOneByOne) {
  for (int64_t past = 0; past < 9; ++past) {
    for (int64_t fresh = 1; fresh < 9; ++fresh) {
      for (int64_t window = 0; window < 20; ++window) {
        int64_t pairs = 0;
        for (int64_t q = past; q < past + fresh; ++q) {
          for (int64_t k = 0; k <= q; ++k) pairs += window == 0 || q - k < window;
        }
        ASSERT_EQ(CausalPairs(past, fresh, window).value(), pairs) << past << " " << fresh << " " << window;
      }
    }
  }
}

TEST(Counts, OfLlama8BDecode) {
  const Graph graph = MakeModel(Llama8B());
  const StepCount step = Count(graph, {.phase = Phase::kDecode, .batch = 16, .context = 2048});
  int64_t flops = 0;
  Exact kept;
  Exact cache;
  for (const Node& of : graph.nodes()) {
    const NodeCount node = At(step, of.id);
    flops += Flops(node);
    kept += Bytes(node.stored);
    cache += Bytes(node.cache_kept);
  }
  // Every kernel element once per sequence; 2 x 2 x heads x head_dim operations per pair and layer.
  const int64_t kernels = int64_t{8030261248} - 128256 * 4096 - 65 * 4096;
  EXPECT_EQ(flops, 2 * 16 * kernels + 16 * int64_t{32} * 4 * 32 * 128 * 2049);
  EXPECT_EQ(kept.value(), 2 * int64_t{8030261248});
  EXPECT_EQ(cache.value(), 16 * int64_t{32} * 2 * 8 * 128 * 2 * 2049);
}

TEST(Counts, LayersThatAreAlikeAreCountedOnce) {
  const StepCount step = Count(MakeModel(Llama8B()), {.batch = 16});
  // Input, embedding, norm (those of layers too), attention, mlp, add, head.
  EXPECT_EQ(step.kinds.size(), 7u);
  EXPECT_EQ(step.nodes.size(), 4u + 32 * 6);
}

TEST(Counts, PrefillIsCausalAndKeepsOneRowOfLogits) {
  const Graph graph = MakeModel({});
  const StepCount step = Count(graph, {.phase = Phase::kPrefill, .batch = 3, .context = 100});
  const NodeCount attn = At(graph, step, "layers.0.attn");
  const int64_t rows = 300;
  const int64_t kernels = 64 * 64 * 2 + 64 * 32 * 2;
  EXPECT_EQ(Flops(attn), 2 * rows * kernels + 3 * int64_t{4} * 4 * 16 * (100 * 101 / 2));
  EXPECT_EQ(Flops(At(graph, step, "layers.0.mlp")), 2 * rows * 3 * 64 * 96);
  EXPECT_EQ(Flops(At(graph, step, "lm_head")), 2 * 3 * 64 * 320);
  EXPECT_EQ(attn.cache_written.value(), 3 * 100 * 2 * 2 * 16 * 2);
  EXPECT_TRUE(attn.cache_read.empty());
  EXPECT_EQ(At(graph, step, "embed").rows_read.value(), 300 * 64 * 2);
  EXPECT_EQ(At(graph, step, "layers.0.add_attn").result_bytes.value(), 300 * 64 * 2);
}

TEST(Counts, EncodersSeeEverythingAndHaveNoDecode) {
  const Graph graph = MakeModel({.causal = false});
  const StepCount step = Count(graph, {.phase = Phase::kPrefill, .batch = 3, .context = 100});
  const int64_t kernels = 64 * 64 * 2 + 64 * 32 * 2;
  EXPECT_EQ(Flops(At(graph, step, "layers.0.attn")), 2 * 300 * kernels + 3 * int64_t{4} * 4 * 16 * 100 * 100);
  EXPECT_EQ(Flops(At(graph, step, "lm_head")), 2 * 300 * 64 * 320) << "an encoder's head reads every place";
  EXPECT_TRUE(At(graph, step, "layers.0.attn").cache_kept.empty());
  EXPECT_EQ(Refusal(graph, {.phase = Phase::kDecode}).code, 1705);
}

TEST(Counts, WindowsRampUpAndBoundTheCache) {
  const Graph graph = MakeModel({.window = 32});
  const StepCount prefill = Count(graph, {.phase = Phase::kPrefill, .context = 100});
  const int64_t kernels = 64 * 64 * 2 + 64 * 32 * 2;
  const int64_t pairs = 32 * 33 / 2 + 68 * 32;
  EXPECT_EQ(Flops(At(graph, prefill, "layers.0.attn")), 2 * 100 * kernels + int64_t{4} * 4 * 16 * pairs);
  EXPECT_EQ(At(graph, prefill, "layers.0.attn").cache_written.value(), 32 * 2 * 2 * 16 * 2);
  const StepCount decode = Count(graph, {.phase = Phase::kDecode, .context = 100});
  EXPECT_EQ(Bytes(At(graph, decode, "layers.0.attn").cache_read), 31 * 2 * 2 * 16 * 2);
  EXPECT_EQ(Bytes(At(graph, decode, "layers.0.attn").cache_kept), 32 * 2 * 2 * 16 * 2);
}

TEST(Counts, PaddingIsIssuedAndNotUseful) {
  const Graph plain = MakeModel({.heads = 3, .kv_heads = 3, .head_dim = 10, .d_ff = 90, .vocab = 300});
  const Graph padded = MakeModel({.heads = Sized(4, 3),
                                  .kv_heads = Sized(4, 3),
                                  .head_dim = Sized(16, 10),
                                  .d_ff = Sized(96, 90),
                                  .vocab = Sized(320, 300)});
  for (const Phase phase : {Phase::kPrefill, Phase::kDecode}) {
    const StepCount a = Count(plain, {.phase = phase, .batch = 2, .context = 50});
    const StepCount b = Count(padded, {.phase = phase, .batch = 2, .context = 50});
    for (const Node& node : plain.nodes())
      EXPECT_EQ(Flops(At(a, node.id)), Flops(At(b, node.id))) << node.path;
    int64_t issued = 0;
    for (const Product& p : At(padded, b, "lm_head").products) issued += Macs(p).value();
    EXPECT_EQ(issued, 2 * 64 * 320);
    EXPECT_GT(Bytes(At(padded, b, "layers.0.attn").cache_kept),
              Bytes(At(plain, a, "layers.0.attn").cache_kept));
  }
}

TEST(Counts, TiedHeadsAreKeptOnceAndReadTwice) {
  const Graph graph = MakeModel({.tied = true});
  const StepCount step = Count(graph, {.batch = 5});
  EXPECT_EQ(Bytes(At(graph, step, "embed").stored), 320 * 64 * 2);
  EXPECT_EQ(Bytes(At(graph, step, "lm_head").stored), 0);
  EXPECT_EQ(Bytes(At(graph, step, "lm_head").weights), 320 * 64 * 2);
  EXPECT_EQ(At(graph, step, "embed").rows_read.value(), 5 * 64 * 2);
}

TEST(Shards, DivideOrReplicateKeysAndValues) {
  const Graph graph = MakeModel({.heads = 8, .kv_heads = 2});
  const StepCount one = Count(graph, {.batch = 2});
  const StepCount two = Count(graph, {.batch = 2, .shards = 2});
  const StepCount eight = Count(graph, {.batch = 2, .shards = 8});
  const int64_t cache = Bytes(At(graph, one, "layers.0.attn").cache_kept);
  EXPECT_EQ(Bytes(At(graph, two, "layers.0.attn").cache_kept), cache / 2);
  EXPECT_EQ(Bytes(At(graph, eight, "layers.0.attn").cache_kept), cache / 2)
      << "one head of two, held four times";
  EXPECT_EQ(Flops(At(graph, eight, "layers.0.attn")), Flops(At(graph, one, "layers.0.attn")));
  // q and o in eighths, k and v in halves.
  EXPECT_EQ(Bytes(At(graph, eight, "layers.0.attn").stored), 2 * (64 * 128 * 2 / 8 + 64 * 32 * 2 / 2));
}

// Everything of two counts that anybody reads.
void ExpectSame(const StepCount& a, const StepCount& b) {
  ASSERT_EQ(a.nodes.size(), b.nodes.size());
  ASSERT_EQ(a.kinds.size(), b.kinds.size());
  for (size_t i = 0; i < a.nodes.size(); ++i) {
    EXPECT_EQ(a.nodes[i].kind, b.nodes[i].kind);
    EXPECT_EQ(a.nodes[i].stage, b.nodes[i].stage);
    EXPECT_EQ(a.nodes[i].keeps, b.nodes[i].keeps);
  }
  const auto same = [](const std::vector<StoredArray>& x, const std::vector<StoredArray>& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](const StoredArray& p, const StoredArray& q) {
      return p.dtype == q.dtype && p.shape == q.shape;
    });
  };
  const auto equal = [](const Exact& x, const Exact& y) {
    return x.ok() == y.ok() && x.value() == y.value();
  };
  for (size_t i = 0; i < a.kinds.size(); ++i) {
    const NodeCount &x = a.kinds[i], &y = b.kinds[i];
    EXPECT_EQ(Flops(x), Flops(y));
    ASSERT_EQ(x.products.size(), y.products.size());
    for (size_t p = 0; p < x.products.size(); ++p) {
      EXPECT_EQ(x.products[p].m, y.products[p].m);
      EXPECT_EQ(x.products[p].count, y.products[p].count);
      EXPECT_EQ(x.products[p].pairs, y.products[p].pairs);
    }
    EXPECT_TRUE(same(x.weights, y.weights) && same(x.cache_read, y.cache_read) &&
                same(x.cache_kept, y.cache_kept));
    EXPECT_TRUE(equal(x.rows_read, y.rows_read) && equal(x.cache_written, y.cache_written) &&
                equal(x.result_bytes, y.result_bytes));
    ASSERT_EQ(x.operand_bytes.size(), y.operand_bytes.size());
    for (size_t o = 0; o < x.operand_bytes.size(); ++o)
      EXPECT_TRUE(equal(x.operand_bytes[o], y.operand_bytes[o]));
    ASSERT_EQ(x.collectives.size(), y.collectives.size());
    for (size_t c = 0; c < x.collectives.size(); ++c)
      EXPECT_TRUE(equal(x.collectives[c].bytes, y.collectives[c].bytes));
    EXPECT_EQ(x.note, y.note);
  }
}

// A law: counted with the help of another count of the step, it is what is counted without.
TEST(Counts, AgainAreTheSameWhateverRoutingAndPadding) {
  using Mixer = ModelSizes::Mixer;
  const ModelSizes models[] = {{.layers = 4},
                               {.layers = 4, .tied = true},
                               {.layers = 3, .experts = 8, .shared_ff = 32},
                               {.layers = 3, .experts = 8, .kv_lora = 40},
                               {.layers = 4, .window = 7},
                               {.layers = 4, .experts = 4, .mixer = Mixer::kDeltaRule},
                               {.layers = 2, .positions = 4096}};
  for (const ModelSizes& sizes : models) {
    const Graph graph = MakeModel(sizes);
    for (Workload w :
         {Workload{.batch = 8, .context = 100}, Workload{.phase = Phase::kPrefill, .context = 33},
          Workload{.batch = 4, .context = 60, .past = 10, .chunk = 13},
          Workload{.batch = 8, .shards = 2, .dp = 2}, Workload{.batch = 8, .pp = 2, .microbatches = 2}}) {
      const StepCount first = Count(graph, w);
      for (const Routing routing : {Routing::kSame, Routing::kExpected, Routing::kSpread}) {
        for (const Padding& padding : {Padding{}, Padding{.page = 16, .tokens_from = 16, .uneven = true}}) {
          w.routing = routing;
          w.padding = padding;
          const absl::StatusOr<StepCount> again = RecountStep(graph, w, first);
          ASSERT_TRUE(again.ok()) << again.status();
          ExpectSame(*again, Count(graph, w));
        }
      }
    }
  }
}

TEST(Shards, RefusalsNameWhatCanBeDone) {
  // More than twice the heads are no padding: as many shards as everything divides over.
  EXPECT_EQ(Refusal(MakeModel({.heads = 8, .kv_heads = 2}), {.shards = 32}).hint, "tp=8 would do");
  EXPECT_EQ(Refusal(MakeModel({.heads = 28, .kv_heads = 4, .d_ff = 112, .vocab = 280}), {.shards = 64}).hint,
            "tp=28 would do");
  EXPECT_EQ(Refusal(MakeModel({.heads = 7, .kv_heads = 7, .vocab = 289}), {.shards = 16}).hint,
            "tp=1 would do");
  // Heads with keys of their own grow alone.
  EXPECT_EQ(Refusal(MakeModel({.heads = 12, .kv_heads = 12}), {.shards = 8}).hint,
            "pad_heads to 16 would do");
  Workload w = {.shards = 6};
  w.ep = 6;
  EXPECT_EQ(Refusal(MakeModel({.heads = 12, .d_ff = 96, .vocab = 600, .experts = 8}), w).hint,
            "ep=2 would do");
  EXPECT_EQ(
      Refusal(MakeModel({.heads = 12, .mixer = ModelSizes::Mixer::kStateSpace, .groups = 3}), {.shards = 4})
          .hint,
      "tp=1 would do");
}

TEST(Shards, RefusalsNameThePad) {
  const Diagnostic heads = Refusal(MakeModel({.heads = 28, .kv_heads = 4}), {.shards = 8});
  EXPECT_EQ(heads.code, 1702);
  EXPECT_EQ(heads.place, "layers.0.attn");
  EXPECT_THAT(heads.message, HasSubstr("heads 28 does not divide over 8 shards"));
  EXPECT_EQ(heads.hint, "pad_heads to 32 would do");
  EXPECT_EQ(Refusal(MakeModel({.d_ff = 90}), {.shards = 4}).hint, "pad_ffn to 92 would do");
  EXPECT_EQ(Refusal(MakeModel({.vocab = 50257}), {.shards = 4}).hint, "pad_vocab to 50260 would do");
  EXPECT_EQ(Refusal(MakeModel({.heads = 24, .kv_heads = 6}), {.shards = 4}).hint,
            "replicate_kv_heads to 12 would do");
  // Padded inside the groups of their kv heads: 33 would be no multiple of eight groups.
  EXPECT_EQ(Refusal(MakeModel({.heads = 32, .kv_heads = 8, .vocab = 300}), {.shards = 3}).hint,
            "pad_heads to 48 would do");
  EXPECT_TRUE(Count(MakeModel({.heads = 48, .kv_heads = 24, .vocab = 300}), {.shards = 3}).kinds.size() > 0);
}

TEST(Experts, AreTheLeastUnlessDeclaredOtherwise) {
  const Graph graph = MakeModel({.experts = 16, .top_k = 4, .shared_ff = 48});
  const int64_t expert = 3 * 64 * 96;
  const int64_t router = 64 * 16;
  const int64_t shared = 3 * 64 * 48;
  const StepCount same = Count(graph, {.batch = 3});
  const StepCount spread = Count(graph, {.batch = 3, .routing = Routing::kSpread});
  const NodeCount least = At(graph, same, "layers.0.moe");
  const NodeCount most = At(graph, spread, "layers.0.moe");
  EXPECT_EQ(Flops(least), 2 * 3 * (4 * expert + router + shared));
  EXPECT_EQ(Flops(most), Flops(least));
  EXPECT_EQ(Bytes(least.weights), 2 * (4 * expert + router + shared));
  EXPECT_EQ(Bytes(most.weights), 2 * (12 * expert + router + shared));
  EXPECT_EQ(Bytes(least.stored), 2 * (16 * expert + router + shared));
  EXPECT_THAT(least.note, HasSubstr("same experts"));
  const StepCount full = Count(graph, {.batch = 9, .routing = Routing::kSpread});
  EXPECT_EQ(Bytes(At(graph, full, "layers.0.moe").weights), 2 * (16 * expert + router + shared))
      << "no more than all";
}

int64_t Issued(const NodeCount& node) {
  int64_t macs = 0;
  for (const Product& product : node.products) macs += Macs(product).value();
  return 2 * macs;
}

TEST(Experts, GroupsComputeAllTheirMembers) {
  const Graph apart = MakeModel({.experts = 16, .top_k = 3});
  const Graph grouped = MakeModel({.experts = 16, .top_k = 3, .members = 2});
  const int64_t expert = 3 * 64 * 96;
  const int64_t router = 64 * 16;
  for (const Routing routing : {Routing::kSame, Routing::kSpread}) {
    const StepCount a = Count(apart, {.batch = 5, .routing = routing});
    const StepCount b = Count(grouped, {.batch = 5, .routing = routing});
    EXPECT_EQ(Flops(At(grouped, b, "layers.0.moe")), Flops(At(apart, a, "layers.0.moe")));
    EXPECT_EQ(Issued(At(apart, a, "layers.0.moe")), 2 * 5 * (3 * expert + router));
    // Three experts lie in two pairs at best, in three at worst.
    const int64_t computed = routing == Routing::kSame ? 4 : 6;
    EXPECT_EQ(Issued(At(grouped, b, "layers.0.moe")), 2 * 5 * (computed * expert + router));
  }
}

TEST(LatentAttention, IsAbsorbedInDecodeAndExpandedInPrefill) {
  const ModelSizes sizes = {.heads = 4, .kv_lora = 32};
  const Graph graph = MakeModel(sizes);
  const int64_t down = 64 * 24 + 64 * 32 + 64 * 8;            // q_a, kv_a, k_rope
  const int64_t up = 24 * 4 * (16 + 8) + 32 * 4 * (16 + 16);  // q_nope, q_rope, k_b, v_b
  const int64_t out = 4 * 16 * 64;
  const StepCount decode = Count(graph, {.batch = 3, .context = 10});
  const NodeCount step = At(graph, decode, "layers.0.attn");
  EXPECT_EQ(Flops(step), 2 * 3 * (down + up + out + 11 * 4 * (32 + 8 + 32)));
  EXPECT_EQ(Bytes(step.cache_read), 3 * 10 * (32 + 8) * 2);
  EXPECT_THAT(step.note, HasSubstr("absorbed"));
  const StepCount prefill = Count(graph, {.phase = Phase::kPrefill, .batch = 3, .context = 10});
  EXPECT_EQ(Flops(At(graph, prefill, "layers.0.attn")),
            2 * (30 * (down + up + out) + 3 * (10 * 11 / 2) * 4 * (16 + 8 + 16)));
  EXPECT_EQ(At(graph, prefill, "layers.0.attn").cache_written.value(), 3 * 10 * (32 + 8) * 2);
  const StepCount sharded = Count(graph, {.batch = 3, .context = 10, .shards = 4});
  EXPECT_EQ(Bytes(At(graph, sharded, "layers.0.attn").cache_read), Bytes(step.cache_read))
      << "whole on each device";
}

// The least is the same; whether the graph takes it is told.
TEST(LatentAttention, SaysWhetherTheGraphAbsorbs) {
  const Graph plain = MakeModel({.heads = 4, .kv_lora = 32});
  Graph absorbed = plain;
  Rewriter rewriter(absorbed, "1 absorb_mla");
  const Node& node = *absorbed.FindNode("layers.0.attn");
  OpAttrs attrs = *node.attrs;
  attrs.mutable_latent_attention()->set_absorbed(true);
  rewriter.SetAttrs(node.id, attrs);
  const StepCount a = Count(plain, {.context = 10}), b = Count(absorbed, {.context = 10});
  EXPECT_EQ(Flops(At(plain, a, "layers.0.attn")), Flops(At(absorbed, b, "layers.0.attn")));
  EXPECT_THAT(At(plain, a, "layers.0.attn").note, HasSubstr("absorbed at best"));
  EXPECT_EQ(At(absorbed, b, "layers.0.attn").note, "absorbed latent cache");
}

TEST(Workloads, EndWhereThePositionTableDoes) {
  const Graph graph = MakeModel({.positions = 64});
  EXPECT_TRUE(CountStep(graph, {.phase = Phase::kPrefill, .context = 64}).ok());
  EXPECT_EQ(Refusal(graph, {.phase = Phase::kPrefill, .context = 65}).code, 1703);
  EXPECT_TRUE(CountStep(graph, {.phase = Phase::kDecode, .context = 63}).ok());
  EXPECT_EQ(Refusal(graph, {.phase = Phase::kDecode, .context = 64}).hint, "give a context of at most 63");
  EXPECT_EQ(Refusal(graph, {.phase = Phase::kPrefill, .context = 60, .past = 10}).hint,
            "give a context of at most 54");
  EXPECT_EQ(Refusal(graph, {.phase = Phase::kPrefill, .context = 1, .past = 64}).hint,
            "give a past of at most 63");
}

TEST(Workloads, OutOfRangeAreRefused) {
  const Graph graph = MakeModel({});
  EXPECT_EQ(Refusal(graph, {.batch = 0}).code, 1703);
  EXPECT_EQ(Refusal(graph, {.context = -1}).code, 1703);
  EXPECT_EQ(Refusal(graph, {.phase = Phase::kPrefill, .context = 0}).code, 1703);
  EXPECT_EQ(Refusal(graph, {.shards = 0}).code, 1703);
  EXPECT_EQ(Refusal(graph, {.batch = int64_t{1} << 40}).code, 1703);
  EXPECT_EQ(Refusal(graph, {.phase = Phase::kPrefill, .batch = 1 << 20, .context = 1 << 20}).place, "batch");
  EXPECT_TRUE(CountStep(graph, {.phase = Phase::kDecode, .context = 0}).ok());
}

}  // namespace
}  // namespace twinforge
