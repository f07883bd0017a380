// Any bytes: ParseGraph ends, and what it accepts prints to a text that parses to the same text.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "ir/text.h"

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
};
const size_t kSeedCount = sizeof(kSeeds) / sizeof(kSeeds[0]);
