// Any bytes: ParseGraph ends, and what it accepts prints to a text that parses to the same text. Every
// composite of it has a decomposition that is a graph in the same sense, or a refusal with a diagnostic.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "eval/evaluate.h"
#include "ir/decompose.h"
#include "ir/text.h"

namespace {

using twinforge::DecompositionDepth;

constexpr int64_t kMostElements = 4096;

void CheckDecompositions(const twinforge::Graph& graph) {
  for (const twinforge::Node& node : graph.nodes()) {
    if (twinforge::Info(node.op).composite == nullptr) continue;
    for (const bool with_state : {false, true}) {
      const DecompositionDepth depth =
          with_state ? DecompositionDepth::kPrimitives : DecompositionDepth::kOnce;
      const auto body = twinforge::DecompositionOf(graph, node, depth, with_state);
      if (!body.ok()) {
        TWIN_CHECK(twinforge::DiagnosticOf(body.status()).has_value(), "a refusal without a diagnostic");
        continue;
      }
      TWIN_CHECK(twinforge::ParseGraph(twinforge::Text(*body)).ok(), "a decomposition is not accepted");
    }
  }
}

// Inputs of zeros, two for each symbol.
void CheckEvaluation(const twinforge::Graph& graph) {
  twinforge::NamedTensors inputs;
  for (const twinforge::NodeId id : graph.inputs()) {
    const twinforge::Node& node = graph.node(id);
    twinforge::Shape shape;
    for (const twinforge::Axis& axis : node.type.axes) shape.push_back(axis.size.value().value_or(2));
    const std::optional<int64_t> count = twinforge::CheckedElementCount(shape);
    if (!count || *count > kMostElements) return;
    inputs[node.path] = twinforge::Tensor(node.type.dtype, shape, std::vector<double>(*count, 0.0));
  }
  const twinforge::RandomTensors reader(1);
  const auto out =
      twinforge::Evaluate(graph, twinforge::StoredParams(reader), inputs, {.max_elements = kMostElements});
  if (!out.ok())
    TWIN_CHECK(twinforge::DiagnosticOf(out.status()).has_value(), "a refusal without a diagnostic");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const auto graph = twinforge::ParseGraph(text);
  if (!graph.ok()) {
    TWIN_CHECK(twinforge::DiagnosticOf(graph.status()).has_value(), "a refusal without a diagnostic");
    return 0;
  }
  const std::string once = twinforge::Text(*graph);
  const auto again = twinforge::ParseGraph(once);
  TWIN_CHECK(again.ok(), "what was printed is not accepted");
  TWIN_CHECK(twinforge::Text(*again) == once, "printed twice, and not the same");
  CheckDecompositions(*graph);
  CheckEvaluation(*graph);
  return 0;
}

extern const char* const kSeeds[];
extern const size_t kSeedCount;
const char* const kSeeds[] = {
    R"(graph g(x: f32[batch, seq, d_model=8]) -> (y: m) {
  n = layer_norm(x) @n bias=@n.bias {eps: 1e-05}
  m = gated_mlp(n) gate=@m.gate up=@m.up down=@m.down {act: SILU} by "1 pad_ffn"
}
params {
  @m.down: f32[d_ff=4~3 -> d_model=8] in_out = source("d": f32[4, 8])
  @m.gate: f32[d_model=8 -> d_ff=4~3] out_in = transpose(source("g": f32[4, 8]), [1, 0])
  @m.up: f32[d_model=8 -> d_ff=4~3] out_in = transpose(take(source("u": f32[3, 8]), 0, [0:3 fill:1]), [1, 0])
  @n: f32[d_model=8] = source("n": f32[8])
  @n.bias: f32[d_model=8] = fill(0: f32[8])
}
bundles {
  @m.gate_up = interleave(@m.gate, @m.up)
}
)",
    R"(graph moe(x: bf16[seq=2*batch + 1, d_model=4]) -> (y: s) {
  e = moe(x) router=@e.router gate=@e.gate up=@e.up down=@e.down {top_k: 1 expert { act: GELU }}
  a = attention(e) q=@a.q k=@a.k v=@a.v o=@a.o {scale: 0.5 rope { style: HALVES theta: 10000 rotary_dim: 2 }}
  s = add(e, a)
}
params {
  @a.k: bf16[d_model=4 -> kv_heads=1, head_dim=2] in_out = source("k": bf16[4, 1, 2])
  @a.o: bf16[heads=2, head_dim=2 -> d_model=4] in_out = source("o": bf16[2, 2, 4])
  @a.q: bf16[d_model=4 -> heads=2, head_dim=2] in_out = source("q": bf16[4, 2, 2])
  @a.v: bf16[d_model=4 -> kv_heads=1, head_dim=2] in_out = source("v": bf16[4, 1, 2])
  @e.down: bf16[expert=2; d_ff=3 -> d_model=4] in_out per_expert = source("ed": bf16[2, 3, 4])
  @e.gate: bf16[expert=2; d_model=4 -> d_ff=3] in_out = source("eg": bf16[2, 4, 3])
  @e.router: bf16[d_model=4 -> expert=2] out_in = source("r": bf16[4, 2])
  @e.up: bf16[expert=2; d_model=4 -> d_ff=3] in_out = source("eu": bf16[2, 4, 3])
}
)",
    R"(graph parts(x: f32[batch, seq, heads=2, width=4], at: i32[batch, seq]) -> (y: y, z: z) {
  r = rope(x, at) {style: INTERLEAVED theta: 10000 rotary_dim: 2 scaling { kind: DYNAMIC factor: 2 } max_position_embeddings: 4}
  c = constant() {type: "f32[batch, seq, heads=2, width=4]" values: 0.5}
  m = multiply(r, c)
  s = slice(m) {axis: "width" start: 1 size: 2}
  p = pad(s) {axis: 3 low: 1 high: 1 interior: 1 value: -1}
  t = transpose(p) {permutation: 0 permutation: 2 permutation: 1 permutation: 3}
  d = dot(t, t) {lhs_batch: 0 lhs_batch: 1 rhs_batch: 0 rhs_batch: 1 lhs_contract: 3 rhs_contract: 3}
  k = top_k(p) {k: 2}
  g = gather(p, k) {axis: 3}
  q = router(g) {top_k: 1 score: SIGMOID groups: 2 top_groups: 1}
  u = reduce(q) {kind: MAX axes: 3}
  w = param() @w
  o = opaque(u, w) {domain: "ai.onnx" op: "NonZero" type: "f32[batch, n=3]" attributes: "\001\377"}
  y = concat(o, o, o) {axis: 1}
  i = iota() {type: "i32[m=2, n=3]" axis: 1}
  b = broadcast(i) {type: "i32[m=2, k=2, n=3]" axes: 0 axes: 2}
  e = compare(b, b) {direction: LE}
  f = convert(e) {dtype: "f64"}
  z = reshape(f) {type: "f64[all=12]"}
}
params {
  @w: f32[expert=2; d_model=4/2 -> d_ff=4~3/4] in_out = source("w": f32[2, 4, 4])
}
)",
    R"(graph mixers(x: f32[batch, seq, d_model=2]) -> (y: s) {
  c = short_conv(x) b=@c.b c=@c.c x=@c.x taps=@c.taps o=@c.o {act: SILU}
  t = constant() {type: "f32[tap=2, in=2, d_model=2]" values: 0.5}
  v = conv(c, t) {strides: 1 low: 1 high: 0}
  f = reduce(v) {kind: SUM axes: 1}
  s = scan(f, v, v) {product: ELEMENTWISE}
}
params {
  @c.b: f32[d_model=2 -> channels=3] in_out = source("b": f32[2, 3])
  @c.c: f32[d_model=2 -> channels=3] in_out = source("c": f32[2, 3])
  @c.o: f32[channels=3 -> d_model=2] in_out = source("o": f32[3, 2])
  @c.taps: f32[tap=2, channels=3] = source("t": f32[2, 3])
  @c.x: f32[d_model=2 -> channels=3] in_out = source("x": f32[2, 3])
}
)",
};
const size_t kSeedCount = sizeof(kSeeds) / sizeof(kSeeds[0]);
