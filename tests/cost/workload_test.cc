#include "cost/workload.h"

#include <cmath>
#include <string>

#include "base/diagnostic.h"
#include "cost/counts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cost/models.h"

namespace twinforge {
namespace {

using ::testing::HasSubstr;

template <typename T>
Diagnostic Refusal(const absl::StatusOr<T>& result) {
  EXPECT_TRUE(DiagnosticOf(result.status()).has_value()) << result.status();
  return DiagnosticOf(result.status()).value_or(Diagnostic());
}

TEST(Meshes, AreReadAndWritten) {
  const Mesh mesh = *ParseMesh("ep=8,dp=4,tp=2");
  EXPECT_EQ(mesh.tp, 2);
  EXPECT_EQ(mesh.dp, 4);
  EXPECT_EQ(mesh.ep, 8);
  EXPECT_EQ(mesh.pp, 1);
  EXPECT_EQ(mesh.chips(), 8) << "experts lie on the devices of the others";
  EXPECT_EQ(MeshText(mesh), "tp=2,dp=4,ep=8");
  EXPECT_EQ(MeshText({}), "tp=1");
  EXPECT_EQ(ParseMesh("tp=4,pp=3")->chips(), 12);
  const Mesh slices = *ParseMesh("sp=4,dp=2@dcn,ep=8");
  EXPECT_EQ(slices.chips(), 8) << "experts span the parts of a sequence too";
  EXPECT_TRUE(slices.dcn.dp);
  EXPECT_FALSE(slices.dcn.sp || slices.dcn.tp || slices.dcn.pp);
  for (const char* text : {"tp=1", "tp=8", "dp=8", "tp=2,dp=2,ep=4,pp=3", "tp=8,dp=2@dcn,sp=4,pp=2@dcn"})
    EXPECT_EQ(MeshText(*ParseMesh(text)), text);
  EXPECT_EQ(ParseMesh("")->chips(), 1);
}

TEST(Meshes, ThatAreNoneAreRefused) {
  for (const char* text : {"tp", "tp=", "tp=0", "tp=-2", "tp=2.5", "tp=1048577", "tp=99999999999999999999",
                           "xp=2", "8", "tp=2,tp=2", "tp=2,ep=3", "ep=2", "tp=2=2", "TP=8", " tp=8"}) {
    EXPECT_EQ(Refusal(ParseMesh(text)).code, 1720) << text;
    EXPECT_EQ(Refusal(ParseMesh(text)).place, text);
  }
  EXPECT_THAT(Refusal(ParseMesh("xp=2")).message, HasSubstr("\"xp\""));
  for (const char* loose : {",", "tp=8,", ",tp=8"}) EXPECT_EQ(Refusal(ParseMesh(loose)).code, 1720) << loose;
  EXPECT_THAT(Refusal(ParseMesh("xp=2")).hint, HasSubstr("tp, dp, sp, ep and pp"));
  for (const char* text : {"ep=8@dcn,tp=8", "dp=1@dcn", "tp=8@ici", "@dcn", "tp=@dcn", "tp=1048576,sp=2"})
    EXPECT_EQ(Refusal(ParseMesh(text)).code, 1720) << text;
  EXPECT_THAT(Refusal(ParseMesh("tp=1048576,sp=2")).message, HasSubstr("at most 1048576 chips"));
  EXPECT_THAT(Refusal(ParseMesh("tp=2,tp=2")).message, HasSubstr("given twice"));
  EXPECT_THAT(Refusal(ParseMesh("tp=0")).message, HasSubstr("needs a size"));
  EXPECT_THAT(Refusal(ParseMesh("tp=2,ep=3")).message, HasSubstr("ep 3 does not divide tp x dp = 2"));
  EXPECT_THAT(Refusal(ParseMesh("x\x1b=2")).message, HasSubstr("\\u001b")) << "shown, not obeyed";
}

TEST(Formats, AreKnownByName) {
  for (const char* name : {"bf16", "f16", "f32", "fp8", "fp8_block", "int8", "int4", "nvfp4", "mxfp4"}) {
    const absl::StatusOr<WeightFormat> format = ParseWeightFormat(name);
    ASSERT_TRUE(format.ok()) << format.status();
    EXPECT_EQ(format->name, name);
  }
  const Diagnostic no = Refusal(ParseWeightFormat("fp7"));
  EXPECT_EQ(no.code, 1704);
  EXPECT_THAT(no.hint, HasSubstr("bf16, f16, f32, fp8, fp8_block, int8, int4, nvfp4, mxfp4"));
}

const NodeCount& At(const Graph& graph, const StepCount& step, absl::string_view path) {
  return step.KindOf(graph.FindNode(path)->id);
}

int64_t Bytes(const std::vector<StoredArray>& arrays) {
  Exact bytes;
  for (const StoredArray& array : arrays) bytes += CompactBytes(array.dtype, array.shape);
  return bytes.value();
}

Workload In(const char* format, Workload workload = {}) {
  workload.precision.weights = *ParseWeightFormat(format);
  workload.precision.activations = workload.precision.weights->multiplied;
  return workload;
}

// A gated feed-forward of 256 x 384, twice up and once down: elements, and a scale for each group.
TEST(Formats, BringTheirScales) {
  const Graph graph = MakeModel({.d_model = 256, .d_ff = 384});
  const int64_t n = 3 * 256 * 384;
  const auto mlp = [&](const char* format) {
    return Bytes(At(graph, *CountStep(graph, In(format)), "layers.0.mlp").weights);
  };
  EXPECT_EQ(mlp("bf16"), 2 * n);
  EXPECT_EQ(mlp("fp8"), n);
  EXPECT_EQ(mlp("fp8_block"), n + 3 * (2 * 3) * 4) << "128 x 128 blocks, f32";
  EXPECT_EQ(mlp("int8"), n);
  EXPECT_EQ(mlp("int4"), n / 2 + n / 128 * 2) << "groups of 128 along the contraction, bf16";
  EXPECT_EQ(mlp("nvfp4"), n / 2 + n / 16) << "groups of 16, e4m3";
  EXPECT_EQ(mlp("mxfp4"), n / 2 + n / 32) << "groups of 32, e8m0";
  // Blocks that the sizes do not fill have a scale all the same.
  const Graph odd = MakeModel({.d_model = 192, .d_ff = 320});
  EXPECT_EQ(Bytes(At(odd, *CountStep(odd, In("fp8_block")), "layers.0.mlp").weights),
            3 * 192 * 320 + 3 * (2 * 3) * 4);
}

TEST(Formats, LeaveEmbeddingsHeadsRoutersAndNormsAlone) {
  const Graph graph = MakeModel({.experts = 8});
  const StepCount plain = *CountStep(graph, {}), coded = *CountStep(graph, In("fp8"));
  for (const char* path : {"embed", "lm_head", "norm", "layers.0.norm_in"}) {
    EXPECT_EQ(Bytes(At(graph, coded, path).weights), Bytes(At(graph, plain, path).weights)) << path;
  }
  const int64_t router = 64 * 8, expert = 3 * 64 * 96;
  EXPECT_EQ(Bytes(At(graph, plain, "layers.0.moe").weights), 2 * (router + 2 * expert));
  EXPECT_EQ(Bytes(At(graph, coded, "layers.0.moe").weights), 2 * router + 2 * expert);
}

// As DeepSeek-V3 is served: attention by data, experts by expert.
TEST(Meshes, OfDataAndExperts) {
  const int64_t experts = 64, k = 4, expert = 3 * 64 * 96;
  const Graph graph = MakeModel({.experts = experts, .top_k = k, .shared_ff = 32, .kv_lora = 32});
  Workload w{.batch = 32, .context = 100, .routing = Routing::kExpected};
  const StepCount whole = *CountStep(graph, w);
  w.dp = 8;
  w.ep = 8;
  const StepCount shared = *CountStep(graph, w);
  const NodeCount& a = At(graph, whole, "layers.0.attn");
  const NodeCount& b = At(graph, shared, "layers.0.attn");
  EXPECT_EQ(Bytes(b.weights), Bytes(a.weights)) << "whole on each device";
  EXPECT_EQ(8 * Bytes(b.cache_read), Bytes(a.cache_read)) << "sequences are shared";
  EXPECT_TRUE(b.collectives.empty()) << "attention by data exchanges nothing";
  // Of all 64 experts, those that 32 tokens chose four times each; an eighth of them on a device.
  const auto distinct = static_cast<int64_t>(std::ceil(64 * (1 - std::pow(1 - 4.0 / 64, 32))));
  EXPECT_EQ(distinct, 56);
  const int64_t always = 64 * experts + 3 * 64 * 32;  // router and shared expert
  const NodeCount& one = At(graph, whole, "layers.0.moe");
  const NodeCount& eighth = At(graph, shared, "layers.0.moe");
  EXPECT_EQ(Bytes(one.weights), 2 * (distinct * expert + always));
  EXPECT_EQ(Bytes(eighth.weights), 2 * (distinct / 8 * expert + always));
  int64_t stored = 0;
  for (const std::vector<StoredArray>& arrays : eighth.stored) stored += Bytes(arrays);
  EXPECT_EQ(stored, 2 * (experts / 8 * expert + always));
  // 128 choices over eight devices: sixteen rows of each kernel.
  int64_t macs = 0;
  for (const Product& product : eighth.products) macs += Macs(product).value();
  EXPECT_EQ(macs, 16 * expert + 4 * always);
  // Four tokens of a device go to four others at most, in bf16, there and back.
  ASSERT_EQ(eighth.collectives.size(), 2u);
  for (const Collective& c : eighth.collectives) {
    EXPECT_EQ(c.kind, Collective::Kind::kAllToAll);
    EXPECT_EQ(c.devices, 8);
    EXPECT_EQ(c.bytes.value(), 4 * 4 * 64 * 2);
  }
}

TEST(Meshes, OfTensorsReduceWhatTheyShare) {
  const Graph graph = MakeModel({.kv_heads = 4});
  const StepCount step = *CountStep(graph, {.batch = 5, .context = 10, .shards = 4});
  for (const char* path : {"layers.0.attn", "layers.0.mlp"}) {
    const NodeCount& node = At(graph, step, path);
    ASSERT_EQ(node.collectives.size(), 1u) << path;
    EXPECT_EQ(node.collectives[0].kind, Collective::Kind::kAllReduce);
    EXPECT_EQ(node.collectives[0].bytes.value(), 5 * 64 * 2);
    EXPECT_EQ(node.collectives[0].devices, 4);
  }
  EXPECT_TRUE(At(graph, step, "layers.0.norm_in").collectives.empty());
}

// Distinct experts: E (1 - (1 - k/E)^T), rounded up, never more than all, never fewer than one token's own.
TEST(Routing, AtRandomMeetsTheExpectedNumberOfExperts) {
  for (const int64_t experts : {8, 64, 256}) {
    for (const int64_t k : {1, 2, 8}) {
      const Graph graph = MakeModel({.experts = experts, .top_k = k});
      for (const int64_t tokens : {1, 2, 7, 32, 1000}) {
        const StepCount step = *CountStep(graph, {.batch = tokens, .routing = Routing::kExpected});
        const double share = static_cast<double>(k) / static_cast<double>(experts);
        const double expected = static_cast<double>(experts) * (1 - std::pow(1 - share, tokens));
        const int64_t read = Bytes(At(graph, step, "layers.0.moe").weights) / 2 - 64 * experts;
        EXPECT_EQ(read % (3 * 64 * 96), 0);
        const auto distinct = static_cast<double>(read / (3 * 64 * 96));
        EXPECT_GE(distinct, expected - 1e-6) << experts << " " << k << " " << tokens;
        EXPECT_LT(distinct, expected + 1);
        EXPECT_GE(distinct, static_cast<double>(k));
        EXPECT_LE(distinct, static_cast<double>(experts));
      }
    }
  }
}

TEST(Workloads, ShareTheBatchAmongTheirGroups) {
  Workload w{.batch = 7};
  w.dp = 4;
  w.shards = 2;
  EXPECT_EQ(w.local_batch(), 2);
  EXPECT_EQ(w.devices(), 8);
  const Graph graph = MakeModel({});
  w.dp = 0;
  EXPECT_EQ(Refusal(CountStep(graph, w)).code, 1703);
  w.dp = 1;
  w.pp = 2;
  EXPECT_EQ(Refusal(CountStep(graph, w)).code, 1702) << "two stages of one layer";
}

}  // namespace
}  // namespace twinforge
