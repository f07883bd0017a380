// One mistake at a time in graphs of every op, and what Verify says of it.
#include "ir/verify.h"

#include <cstring>
#include <string>

#include "absl/strings/match.h"
#include "base/diagnostic.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/rewriter.h"
#include "ir/text.h"

namespace twinforge {
namespace {

using ::testing::HasSubstr;

struct Mistake {
  const char* from;
  const char* to;
  const char* told;
};

void ExpectTold(absl::string_view text, absl::Span<const Mistake> mistakes) {
  ASSERT_TRUE(ParseGraph(text).ok()) << ParseGraph(text).status();
  for (const Mistake& mistake : mistakes) {
    ASSERT_TRUE(absl::StrContains(text, mistake.from)) << mistake.from;
    std::string changed(text);
    for (size_t at = changed.find(mistake.from); at != std::string::npos;
         at = changed.find(mistake.from, at + strlen(mistake.to))) {
      changed.replace(at, strlen(mistake.from), mistake.to);
    }
    absl::StatusOr<Graph> parsed = ParseGraph(changed);
    ASSERT_FALSE(parsed.ok()) << mistake.from << " became " << mistake.to;
    EXPECT_THAT(Render(parsed.status()), HasSubstr(mistake.told)) << mistake.to;
  }
}

void ExpectMissed(absl::string_view text, const char* path, const char* slot, const char* told) {
  Graph graph = *ParseGraph(text);
  Rewriter(graph, "1 test").RemoveParam(graph.FindNode(path)->id, slot);
  EXPECT_THAT(Render(Verify(graph)), HasSubstr(told));
}

TEST(VerifyTest, Experts) {
  constexpr absl::string_view kText = R"(graph g(x: bf16[seq, d_model=4]) -> (y: e) {
  e = moe(x) router=@e.router gate=@e.gate up=@e.up down=@e.down shared_gate=@e.shared_gate shared_up=@e.shared_up shared_down=@e.shared_down {top_k: 2 score: SIGMOID groups: 2 top_groups: 1 expert { act: SILU } shared { act: SILU }}
}
params {
  @e.down: bf16[expert=4; d_ff=3 -> d_model=4] in_out per_expert = source("d": bf16[4, 3, 4])
  @e.gate: bf16[expert=4; d_model=4 -> d_ff=3] in_out = source("g": bf16[4, 4, 3])
  @e.router: bf16[d_model=4 -> expert=4] out_in = source("r": bf16[4, 4])
  @e.shared_down: bf16[shared_ff=5 -> d_model=4] in_out = source("sd": bf16[5, 4])
  @e.shared_gate: bf16[d_model=4 -> shared_ff=5] in_out = source("sg": bf16[4, 5])
  @e.shared_up: bf16[d_model=4 -> shared_ff=5] in_out = source("su": bf16[4, 5])
  @e.up: bf16[expert=4; d_model=4 -> d_ff=3] in_out = source("u": bf16[4, 4, 3])
}
)";
  const Mistake mistakes[] = {
      {"top_k: 2", "top_k: 5", "error[TF1501]: e: top_k 5 of 4 experts"},
      {"top_k: 2 ", "", "top_k 0 of 4 experts"},
      {"groups: 2 top", "groups: 3 top", "top 1 of 3 groups of 4 experts"},
      {"top_groups: 1", "top_groups: 3", "top 3 of 2 groups of 4 experts"},
      {"score: SIGMOID", "score: 17", "unknown score"},
      {"score: SIGMOID", "routed_scale: -2", "routed_scale is -2"},
      {"expert { act: SILU }", "expert { act: 99 }", "no activation that is known"},
      {" shared { act: SILU }", "", "no activation that is known"},
      {"[expert=4; d_model=4 -> d_ff=3]", "[expert_group=4; d_model=4 -> d_ff=3]",
       "where the slot has [expert ; d_model -> d_ff | expert_group ; d_model -> member d_ff]"},
      {"d_ff=3 -> d_model=4] in_out per_expert = source(\"d\": bf16[4, 3, 4])",
       "d_ff=6 -> d_model=4] in_out per_expert = source(\"d\": bf16[4, 6, 4])",
       "e.down: axis d_ff is 6~6 here and 3~3 in e.gate"},
      {"x: bf16[seq, d_model=4]", "x: bf16[seq, d_model=5]", "axis d_model of the operand"},
      {"x: bf16[seq, d_model=4]", "x: bf16[seq, d_model=4~3]", "axis d_model of the operand"},
  };
  ExpectTold(kText, mistakes);
  ExpectMissed(kText, "e", "shared_gate", "slots shared_gate and shared_up come together or not at all");
  ExpectMissed(kText, "e", "router", "e: no parameter in slot router");
}

// The same experts two by two.
TEST(VerifyTest, ExpertsInGroups) {
  constexpr absl::string_view kText = R"(graph g(x: bf16[seq, d_model=4]) -> (y: e) {
  e = moe(x) router=@e.router gate=@e.gate up=@e.up down=@e.down gate_bias=@e.gate_bias {top_k: 2 expert { clamp_limit: 7 clamp_alpha: 1.7 }}
}
params {
  @e.down: bf16[expert_group=2; member=2, d_ff=3 -> d_model=4] in_out = source("d": bf16[2, 2, 3, 4])
  @e.gate: bf16[expert_group=2; d_model=4 -> member=2, d_ff=3] in_out = source("g": bf16[2, 4, 2, 3])
  @e.gate_bias: bf16[expert_group=2; member=2, d_ff=3] = source("gb": bf16[2, 2, 3])
  @e.router: bf16[d_model=4 -> expert=4] out_in = source("r": bf16[4, 4])
  @e.up: bf16[expert_group=2; d_model=4 -> member=2, d_ff=3] in_out = source("u": bf16[2, 4, 2, 3])
}
)";
  const Mistake mistakes[] = {
      {"[expert_group=2; member=2, d_ff=3] = source(\"gb\": bf16[2, 2, 3])",
       "[expert=2; d_ff=3] = source(\"gb\": bf16[2, 3])",
       "e.gate_bias: axis expert is 2~2 here and 4~4 in e.router"},
      {"[d_model=4 -> expert=4] out_in = source(\"r\": bf16[4, 4])",
       "[d_model=4 -> expert=6] out_in = source(\"r\": bf16[4, 6])", "2 groups of 2 are not 6 experts"},
      {"clamp_limit: 7", "clamp_limit: 0", "clamp_limit is 0"},
      {"clamp_alpha: 1.7", "clamp_alpha: inf", "clamp_alpha or up_offset is no finite number"},
  };
  ExpectTold(kText, mistakes);
}

TEST(VerifyTest, LatentAttention) {
  constexpr absl::string_view kText = R"(graph g(x: f32[seq, d_model=4]) -> (y: a) {
  a = latent_attention(x) q_a=@a.q_a q_a_norm=@a.q_a_norm q_nope=@a.q_nope q_rope=@a.q_rope kv_a=@a.kv_a k_rope=@a.k_rope kv_a_norm=@a.kv_a_norm k_b=@a.k_b v_b=@a.v_b o=@a.o {scale: 0.5 rope { style: INTERLEAVED theta: 10000 rotary_dim: 2 } norm_eps: 1e-06}
}
params {
  @a.k_b: f32[kv_lora=5 -> heads=2, nope_dim=3] out_in = source("kb": f32[5, 2, 3])
  @a.k_rope: f32[d_model=4 -> rope_dim=2] out_in = source("kr": f32[4, 2])
  @a.kv_a: f32[d_model=4 -> kv_lora=5] out_in = source("kva": f32[4, 5])
  @a.kv_a_norm: f32[kv_lora=5] = source("kvn": f32[5])
  @a.o: f32[heads=2, v_head_dim=7 -> d_model=4] out_in = source("o": f32[2, 7, 4])
  @a.q_a: f32[d_model=4 -> q_lora=6] out_in = source("qa": f32[4, 6])
  @a.q_a_norm: f32[q_lora=6] = source("qan": f32[6])
  @a.q_nope: f32[q_lora=6 -> heads=2, nope_dim=3] out_in = source("qn": f32[6, 2, 3])
  @a.q_rope: f32[q_lora=6 -> heads=2, rope_dim=2] out_in = source("qr": f32[6, 2, 2])
  @a.v_b: f32[kv_lora=5 -> heads=2, v_head_dim=7] out_in = source("vb": f32[5, 2, 7])
}
)";
  const Mistake mistakes[] = {
      {"@a.q_rope: f32[q_lora=6 -> heads=2, rope_dim=2] out_in = source(\"qr\": f32[6, 2, 2])",
       "@a.q_rope: f32[d_model=4 -> heads=2, rope_dim=2] out_in = source(\"qr\": f32[4, 2, 2])",
       "a: q_rope reads d_model, not q_lora"},
      {"norm_eps: 1e-06", "norm_eps: -1", "norm_eps is -1"},
      {"scale: 0.5", "scale: 0", "softmax scale is 0"},
      {"rotary_dim: 2", "rotary_dim: 4", "rotary_dim 4 of a head of 2"},
      {"rotary_dim: 2", "rotary_dim: 1", "rotary_dim 1 of a head of 2"},
      {"rotary_dim: 2", "rotary_dim: 2 scaling { kind: YARN }", "rope scaling factor is 0"},
      {"rotary_dim: 2", "rotary_dim: 2 scaling { kind: LONGROPE short_factor: 1 }",
       "longrope factors are not rotary_dim / 2 numbers each"},
      {"rotary_dim: 2", "rotary_dim: 2 scaling { kind: 12 factor: 2 }", "unknown rope scaling"},
      {"scale: 0.5", "scale: 0.5 scale_rule: 3", "unknown scale rule"},
  };
  ExpectTold(kText, mistakes);
  ExpectMissed(kText, "a", "q_a_norm", "slots q_a and q_a_norm come together or not at all");
  ExpectMissed(kText, "a", "v_b", "a: no parameter in slot v_b");
}

TEST(VerifyTest, TheSmallOps) {
  constexpr absl::string_view kText = R"(graph g(x: i32[seq=5, batch]) -> (y: l) {
  e = embedding(x) @e position_table=@e.position_table {scale: 2 position_offset: 2}
  n = layer_norm(e) @n bias=@n.bias {eps: 1e-12}
  s = slice(n) {axis: "seq" size: 1}
  k = linear(s) @k bias=@k.bias
  t = activation(k) {act: TANH}
  l = lm_head(t) @l {softcap: 30}
}
params {
  @e: f32[vocab=9 -> d_model=4] in_out = source("e": f32[9, 4])
  @e.position_table: f32[positions=8 -> d_model=4] in_out = source("p": f32[8, 4])
  @k: f32[d_model=4 -> d_pool=6] out_in = source("k": f32[4, 6])
  @k.bias: f32[d_pool=6] = source("kb": f32[6])
  @l: f32[d_model=6 -> vocab=9] out_in = source("l": f32[6, 9])
  @n: f32[d_model=4] = source("n": f32[4])
  @n.bias: f32[d_model=4] = source("nb": f32[4])
}
)";
  const Mistake mistakes[] = {
      {"scale: 2", "scale: nan", "e: scale is nan"},
      {"position_offset: 2", "position_offset: -1", "position_offset -1"},
      {"eps: 1e-12", "eps: inf", "n: eps is inf"},
      {"axis: \"seq\"", "axis: \"heads\"", "s: the operand has no axis heads"},
      {"size: 1", "size: 6", "s: the slice reaches beyond seq=5"},
      {"size: 1", "size: 1 start: -1", "s: a slice starts before 0 or is empty"},
      {"size: 1", "size: 0", "s: a slice starts before 0 or is empty"},
      {"act: TANH", "act: ACTIVATION_UNSET", "t: no activation that is known"},
      {"softcap: 30", "softcap: -1", "l: softcap is -1"},
      {"[d_pool=6] = source(\"kb\": f32[6])", "[d_pool=7] = source(\"kb\": f32[7])",
       "k.bias: axis d_pool is 7~7 here and 6~6 in k"},
      {"seq=5, batch", "seq=5, batch=0", "x: axis batch has size 0"},
      {"[d_model=6 -> vocab=9]", "[vocab=9 -> d_model=6]",
       "l: axis d_pool of the operand f32[seq=1, batch, d_pool=6] does not fit vocab"},
      {"positions=8", "positions=4000000000000000000", "e.position_table: the number of elements overflows"},
  };
  ExpectTold(kText, mistakes);
}

// Sizes of activations may be symbols; those that a parameter contracts are numbers.
TEST(VerifyTest, ASymbolIsNoContractedSize) {
  const Mistake mistakes[] = {
      {"d_model=4]) ->", "d_model]) ->", "n: axis d_model of the operand f32[seq, d_model]"}};
  ExpectTold(R"(graph g(x: f32[seq, d_model=4]) -> (y: n) {
  n = rms_norm(x) @n {eps: 1e-06}
}
params {
  @n: f32[d_model=4] = source("n": f32[4])
}
)",
             mistakes);
}

TEST(VerifyTest, StacksShardsAndTheWidthOfNorms) {
  constexpr absl::string_view kText = R"(graph g(x: f32[seq, d_model=4]) -> (y: l.1.add) {
  l.0.norm = rms_norm(x) @l.0.norm {eps: 1e-06 norm_dim: 3}
  l.0.mlp = gated_mlp(l.0.norm) gate=@l.0.mlp.gate up=@l.0.mlp.up down=@l.0.mlp.down {act: SILU}
  l.0.add = add(x, l.0.mlp)
  l.1.norm = rms_norm(l.0.add) @l.1.norm {eps: 1e-06}
  l.1.mlp = gated_mlp(l.1.norm) gate=@l.1.mlp.gate up=@l.1.mlp.up down=@l.1.mlp.down {act: SILU}
  l.1.add = add(l.0.add, l.1.mlp)
}
params {
  @l.0.mlp.down: f32[d_ff=6/2 -> d_model=4] in_out = source("d0": f32[6, 4])
  @l.0.mlp.gate: f32[d_model=4 -> d_ff=6/2] in_out = source("g0": f32[4, 6])
  @l.0.mlp.up: f32[d_model=4 -> d_ff=6/2] in_out = source("u0": f32[4, 6])
  @l.0.norm: f32[d_model=4] = source("n0": f32[4])
  @l.1.mlp.down: f32[d_ff=6/2 -> d_model=4] in_out = source("d1": f32[6, 4])
  @l.1.mlp.gate: f32[d_model=4 -> d_ff=6/2] in_out = source("g1": f32[4, 6])
  @l.1.mlp.up: f32[d_model=4 -> d_ff=6/2] in_out = source("u1": f32[4, 6])
  @l.1.norm: f32[d_model=4] = source("n1": f32[4])
}
bundles {
  @l.0.mlp.gate_up = concat(@l.0.mlp.gate, @l.0.mlp.up) shards 2
  @l.1.mlp.gate_up = concat(@l.1.mlp.gate, @l.1.mlp.up) shards 2
}
stacks {
  @l.0-1.mlp.down = stack(@l.0.mlp.down, @l.1.mlp.down)
  @l.0-1.mlp.gate_up = stack(@l.0.mlp.gate_up, @l.1.mlp.gate_up)
}
)";
  EXPECT_EQ(Text(*ParseGraph(kText)), kText);
  const Mistake mistakes[] = {
      {"norm_dim: 3", "norm_dim: 5", "norm_dim 5 of 4 places"},
      {"norm_dim: 3", "norm_dim: -1", "norm_dim -1 of 4 places"},
      {"6/2", "6/4", "axis d_ff 6 does not divide over 4 shards"},
      {"6/2", "6/0", "axis d_ff 6 does not divide over 0 shards"},
      {"6/2", "6/3", "is split over 3 shards, the tensor that holds it is laid for 2"},
      {"@l.1.mlp.up: f32[d_model=4 -> d_ff=6/2]", "@l.1.mlp.up: f32[d_model=4 -> d_ff=6]",
       "d_ff of l.1.mlp.up is split over 1 shards"},
      {"@l.1.mlp.down: f32[d_ff=6/2", "@l.1.mlp.down: f32[d_ff=6",
       "l.0-1.mlp.down: l.1.mlp.down is not stored as l.0.mlp.down is"},
      {"stack(@l.0.mlp.down, @l.1.mlp.down)", "stack(@l.0.mlp.down)", "a stack holds at least two layers"},
      {"@l.1.mlp.down)", "@l.0.mlp.down)", "it is in two stacks"},
      {"@l.1.mlp.down)", "@l.2.mlp.down)", "l.2.mlp.down is no stored tensor"},
      {"@l.1.mlp.down)", "@l.1.mlp.up)", "l.1.mlp.up is no stored tensor"},
      {"@l.1.mlp.down)", "@l.1.norm)", "l.1.norm is not stored as l.0.mlp.down is"},
      {"@l.0-1.mlp.down =", "@l.0.norm =", "a parameter has the stack's role"},
      {"@l.0-1.mlp.down =", "@l.0-1.mlp.gate_up =", "is in two stacks"},
      {"@l.1.mlp.gate, @l.1.mlp.up) shards 2", "@l.1.mlp.up, @l.1.mlp.gate) shards 1", "laid for 1"},
  };
  ExpectTold(kText, mistakes);
}

}  // namespace
}  // namespace twinforge
