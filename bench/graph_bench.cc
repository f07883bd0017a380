// How long large graphs take (100,000 nodes: built, verified, printed, parsed), and how fast small ones are
// evaluated.
#include <benchmark/benchmark.h>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "eval/evaluate.h"
#include "ir/builder.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "weights/build.h"

namespace twinforge {
namespace {

constexpr int kNodes = 100'000;

Param KernelOf(const std::string& name, const ParamType& type) {
  Param param;
  param.type = type;
  param.program = Source(name, type.dtype, type.shape());
  return param;
}

// A norm, a kernel and a sum, over and over: two nodes of three hold a parameter.
Graph Long() {
  const ParamAxis d{"d_model", 64, 64};
  Builder b("long");
  NodeId x = b.Input(
      "x",
      {DType::kBF16, {{"batch", Dim::Symbol("batch")}, {"seq", Dim::Symbol("seq")}, {"d_model", Dim(64)}}});
  OpAttrs norm;
  norm.mutable_norm()->set_eps(1e-5);
  for (int i = 0; i < kNodes / 3; ++i) {
    const std::string at = absl::StrCat("layers.", i);
    const NodeId n = b.Op(OpKind::kRmsNorm, at + ".norm", {x}, norm,
                          {{"scale", KernelOf(at + ".norm", {DType::kBF16, {d}})}});
    const NodeId y = b.Op(OpKind::kLinear, at + ".dense", {n}, OpAttrs(),
                          {{"kernel", KernelOf(at + ".dense", {DType::kBF16, {d, d}, 0, 1})}});
    x = b.Add(at + ".add", x, y);
  }
  b.Output("y", x);
  absl::StatusOr<Graph> graph = b.Finish();
  TWIN_CHECK(graph.ok(), "the long graph is well formed");
  return *std::move(graph);
}

void BM_Build(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Long());
}
BENCHMARK(BM_Build)->Unit(benchmark::kMillisecond);

void BM_Verify(benchmark::State& state) {
  const Graph graph = Long();
  for (auto _ : state) TWIN_CHECK(Verify(graph).ok(), "verified");
}
BENCHMARK(BM_Verify)->Unit(benchmark::kMillisecond);

void BM_Print(benchmark::State& state) {
  const Graph graph = Long();
  for (auto _ : state) benchmark::DoNotOptimize(Text(graph));
}
BENCHMARK(BM_Print)->Unit(benchmark::kMillisecond);

void BM_Parse(benchmark::State& state) {
  const std::string text = Text(Long());
  for (auto _ : state) TWIN_CHECK(ParseGraph(text).ok(), "parsed");
}
BENCHMARK(BM_Parse)->Unit(benchmark::kMillisecond);

// Attention and a gated block, twice, over 2 x 13 positions: what a law or a proof evaluates.
constexpr absl::string_view kSmall = R"(graph small(x: f64[batch, seq, d_model=48]) -> (y: s1) {
  a = attention(x) q=@a.q k=@a.k v=@a.v o=@a.o {scale: 0.25 rope { style: HALVES theta: 10000 rotary_dim: 12 } causal: true}
  s0 = add(x, a)
  m = gated_mlp(s0) gate=@m.gate up=@m.up down=@m.down {act: SILU}
  s1 = add(s0, m)
}
params {
  @a.k: f64[d_model=48 -> kv_heads=2, head_dim=12] in_out = source("k": f64[48, 2, 12])
  @a.o: f64[heads=4, head_dim=12 -> d_model=48] in_out = source("o": f64[4, 12, 48])
  @a.q: f64[d_model=48 -> heads=4, head_dim=12] in_out = source("q": f64[48, 4, 12])
  @a.v: f64[d_model=48 -> kv_heads=2, head_dim=12] in_out = source("v": f64[48, 2, 12])
  @m.down: f64[d_ff=56 -> d_model=48] in_out = source("d": f64[56, 48])
  @m.gate: f64[d_model=48 -> d_ff=56] in_out = source("g": f64[48, 56])
  @m.up: f64[d_model=48 -> d_ff=56] in_out = source("u": f64[48, 56])
}
)";

NamedTensors SmallInputs(int64_t seq) {
  std::vector<double> values(2 * seq * 48);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 17) / 17 - 0.5;
  return {{"x", Tensor(DType::kF64, {2, seq, 48}, std::move(values))}};
}

void BM_EvaluateOnce(benchmark::State& state) {
  const absl::StatusOr<Graph> graph = ParseGraph(kSmall);
  const RandomTensors reader(1);
  const NamedTensors inputs = SmallInputs(13);
  for (auto _ : state) TWIN_CHECK(Evaluate(*graph, StoredParams(reader), inputs).ok(), "evaluated");
}
BENCHMARK(BM_EvaluateOnce)->Unit(benchmark::kMicrosecond);

void BM_EvaluateAgain(benchmark::State& state) {
  const absl::StatusOr<Graph> graph = ParseGraph(kSmall);
  const RandomTensors reader(1);
  const StoredParams params(reader);
  const auto evaluation = Evaluation::Make(*graph, params);
  const NamedTensors inputs = SmallInputs(state.range(0));
  for (auto _ : state) TWIN_CHECK((*evaluation)->Run(inputs).ok(), "evaluated");
}
BENCHMARK(BM_EvaluateAgain)->Arg(13)->Arg(256)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace twinforge

BENCHMARK_MAIN();
