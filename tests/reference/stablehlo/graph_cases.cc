#include "tests/reference/stablehlo/graph_cases.h"

#include <cstdlib>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "ir/builder.h"
#include "ir/op.h"

namespace twinforge {
namespace {

// Inputs are called a, b, c. Whole numbers among them are 0, 1 or 2.
struct Line {
  std::string name;
  std::vector<std::string> inputs;
  std::string line;
};

std::vector<Line> Lines() {
  const std::string v = "f32[n=3]", m = "f32[m=2, n=3]", i = "i32[n=3]";
  return {
      {"constant",
       {},
       "constant() {type: 'f32[m=2, k=1, n=2]' values: 0.1 values: -3 values: 7e20 values: 1e-30}"},
      {"constant_of_numbers", {}, "constant() {type: 'i32[n=3]' values: 7 values: -1 values: 0}"},
      {"constant_infinity", {v}, "minimum(a, b) | b = constant() {type: 'f32[n=3]' values: inf}"},
      {"iota", {}, "iota() {type: 'i32[m=2, n=3]' axis: 1}"},
      {"iota_f32", {}, "iota() {type: 'f32[m=2, n=3]' axis: 0}"},
      {"dimension_size", {m}, "dimension_size(a) {axis: 1}"},
      {"add", {v, v}, "add(a, b)"},
      {"add_of_two_types", {"bf16[n=3]", v}, "add(a, b)"},
      {"subtract", {v, v}, "subtract(a, b)"},
      {"multiply", {"bf16[n=3]", "bf16[n=3]"}, "multiply(a, b)"},
      {"divide", {v, v}, "divide(a, b)"},
      {"divide_whole",
       {i},
       "divide(b, c) | b = constant() {type: 'i32[n=3]' values: 7 values: -7 values: 6}"
       " | c = constant() {type: 'i32[n=3]' values: 2 values: 2 values: -4}"},
      {"maximum", {v, v}, "maximum(a, b)"},
      {"minimum", {v, v}, "minimum(a, b)"},
      {"power", {v}, "power(b, a) | b = abs(a)"},
      {"compare", {v, v}, "compare(a, b) {direction: LT}"},
      {"compare_whole", {i, i}, "compare(a, b) {direction: GE}"},
      {"compare_equal", {i, i}, "compare(a, b) {direction: EQ}"},
      {"negate", {v}, "negate(a)"},
      {"abs", {v}, "abs(a)"},
      {"exp", {v}, "exp(a)"},
      {"log", {v}, "log(b) | b = abs(a)"},
      {"sqrt", {v}, "sqrt(b) | b = abs(a)"},
      {"rsqrt", {v}, "rsqrt(b) | b = abs(a)"},
      {"tanh", {v}, "tanh(a)"},
      {"erf", {m}, "erf(a)"},
      {"erf_far", {m}, "erf(b) | b = divide(a, c) | c = constant() {type: 'f32[m=2, n=3]' values: 0.15}"},
      {"erf_f64", {"f64[n=3]"}, "erf(a)"},
      {"sine", {v}, "sine(a)"},
      {"cosine", {v}, "cosine(a)"},
      {"logistic", {v}, "logistic(a)"},
      {"floor", {v}, "floor(a)"},
      {"sign", {v}, "sign(a)"},
      {"convert", {v}, "convert(a) {dtype: 'bf16'}"},
      {"convert_to_whole",
       {v},
       "convert(b) {dtype: 'i32'} | b = divide(a, c) | c = constant() {type: 'f32[n=3]' values: 0.1}"},
      {"convert_to_truth", {i}, "convert(a) {dtype: 'bool'}"},
      {"select", {"bool[n=3]", v, v}, "select(a, b, c)"},
      {"broadcast", {v}, "broadcast(a) {type: 'f32[m=2, n=3, k=2]' axes: 1}"},
      {"reshape", {m}, "reshape(a) {type: 'f32[m=3, n=2]'}"},
      {"transpose", {"f32[m=2, n=3, k=4]"}, "transpose(a) {permutation: 1 permutation: 2 permutation: 0}"},
      {"slice", {m}, "slice(a) {axis: 'n' start: 1 size: 2}"},
      {"concat", {m, "f32[m=2, n=1]"}, "concat(a, b) {axis: 1}"},
      {"pad", {m}, "pad(a) {axis: 1 low: 1 high: 2 interior: 1 value: 9}"},
      {"reverse", {m}, "reverse(a) {axis: 1}"},
      {"reduce_sum", {m}, "reduce(a) {kind: SUM axes: 0}"},
      {"reduce_max", {m}, "reduce(a) {kind: MAX axes: 1}"},
      {"reduce_min", {m}, "reduce(a) {kind: MIN axes: 0 axes: 1}"},
      {"reduce_max_whole", {i}, "reduce(a) {kind: MAX axes: 0}"},
      {"reduce_min_whole", {i}, "reduce(a) {kind: MIN axes: 0}"},
      {"dot",
       {"f32[b=2, m=3, k=4]", "f32[k=4, n=2, b=2]"},
       "dot(a, b) {lhs_batch: 0 rhs_batch: 2 lhs_contract: 2 rhs_contract: 0}"},
      {"dot_two",
       {"f32[m=1, k=2, l=3]", "f32[l=3, k=2]"},
       "dot(a, b) {lhs_contract: 1 lhs_contract: 2 rhs_contract: 1 rhs_contract: 0}"},
      {"dot_bf16", {"bf16[m=2, k=8]", "bf16[k=8, n=3]"}, "dot(a, b) {lhs_contract: 1 rhs_contract: 0}"},
      {"gather", {"f32[m=3, n=2]", "i32[k=2, l=4]"}, "gather(a, b) {}"},
      {"gather_shared", {"f32[m=2, n=3, k=2]", "i32[m=2, l=4]"}, "gather(a, b) {axis: 1}"},
      {"top_k", {"f32[m=2, n=6]"}, "top_k(a) {k: 3}"},
      {"top_k_ties", {"i32[n=6]"}, "top_k(a) {k: 4}"},
      {"conv_depthwise",
       {"f32[b=2, t=5, c=3]", "f32[k=3, one=1, c=3]"},
       "conv(a, b) {strides: 1 low: 2 high: 0 groups: 3}"},
      {"conv_two",
       {"f32[b=1, h=4, w=6, c=2]", "f32[h=2, w=3, c=2, o=3]"},
       "conv(a, b) {strides: 2 strides: 1 low: 0 low: 1 high: 0 high: 1}"},
      {"scan", {"f32[b=2, n=3]", "f32[b=2, t=4, n=3]", "f32[b=2, t=4, n=3]"}, "scan(a, b, c) {}"},
      {"scan_matrix",
       {"f32[b=2, m=1, n=2]", "f32[b=2, t=3, k=2, n=2]", "f32[b=2, t=3, m=1, n=2]"},
       "scan(a, b, c) {product: MATRIX}"},
  };
}

std::string TextOf(const Line& line) {
  std::vector<std::string> parts = absl::StrSplit(line.line, " | ");
  std::string text = "graph t(";
  for (size_t i = 0; i < line.inputs.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", std::string(1, static_cast<char>('a' + i)), ": ",
                    line.inputs[i]);
  }
  absl::StrAppend(&text, ") -> (y: y) {\n");
  for (size_t i = parts.size(); i-- > 1;) absl::StrAppend(&text, "  ", parts[i], "\n");
  return absl::StrCat(text, "  y = ", parts[0], "\n}\n");
}

// A graph of one block over x [batch, seq, d_model=4].
struct BlockCase {
  std::string name, op, attrs;
  std::vector<std::pair<std::string, std::string>> slots;  // slot -> axes, a kernel's orientation before them
  std::string bundles;
};

std::string TextOf(const BlockCase& block) {
  std::map<std::string, std::string> params;
  std::string used;
  for (const auto& [slot, said] : block.slots) {
    const bool kernel = said.find("->") != std::string::npos;
    const std::string axes = kernel ? said.substr(said.find(' ') + 1) : said;
    const std::string role = RoleOf(*OpKindFromName(block.op), "y", slot);
    std::string sizes;
    for (size_t at = axes.find('='); at != std::string::npos; at = axes.find('=', at + 1)) {
      absl::StrAppend(&sizes, sizes.empty() ? "" : ", ", std::atoi(axes.c_str() + at + 1));
    }
    absl::StrAppend(&used, " ", slot, "=@", role);
    params[role] =
        absl::StrCat("  @", role, ": f32[", axes, "]", kernel ? " " + said.substr(0, said.find(' ')) : "",
                     " = source(\"", role, "\": f32[", sizes, "])\n");
  }
  std::string text = absl::StrCat("graph t(x: f32[batch, seq, d_model=4]) -> (y: y) {\n  y = ", block.op,
                                  "(x)", used, " {", block.attrs, "}\n}\nparams {\n");
  for (const auto& [role, line] : params) absl::StrAppend(&text, line);
  absl::StrAppend(&text, "}\n");
  if (!block.bundles.empty()) absl::StrAppend(&text, "bundles {\n  ", block.bundles, "\n}\n");
  return text;
}

// 4 heads that share 2, laid `how`.
std::vector<std::pair<std::string, std::string>> Heads(const std::string& how) {
  return {{"q", how + " d_model=4 -> heads=4, head_dim=6"},
          {"k", how + " d_model=4 -> kv_heads=2, head_dim=6"},
          {"v", how + " d_model=4 -> kv_heads=2, head_dim=6"},
          {"o", how + " heads=4, head_dim=6 -> d_model=4"}};
}

std::vector<std::pair<std::string, std::string>> Experts(const std::string& how) {
  return {{"router", how + " d_model=4 -> expert=3"},
          {"gate", how + " expert=3; d_model=4 -> d_ff=8"},
          {"up", how + " expert=3; d_model=4 -> d_ff=8"},
          {"down", how + " expert=3; d_ff=8 -> d_model=4"}};
}

const char kRope[] = " rope { style: HALVES theta: 100 rotary_dim: 6 }";

std::vector<BlockCase> BlockCases() {
  const std::string scale = "scale: 0.4", causal = scale + " causal: true",
                    moe = "top_k: 2 expert { act: SILU }";
  const std::string three = "(@y.q, @y.k, @y.v)";
  return {
      {"attention_out_in", "attention", causal + kRope, Heads("out_in"), ""},
      {"attention_in_out", "attention", causal + kRope, Heads("in_out"), ""},
      {"attention_bundled", "attention", causal + kRope, Heads("out_in"), "@y.qkv = concat" + three},
      {"attention_bundled_in_out", "attention", causal + kRope, Heads("in_out"), "@y.qkv = concat" + three},
      {"attention_by_shard", "attention", causal + kRope, Heads("out_in"),
       "@y.qkv = concat" + three + " shards 2"},
      {"attention_window", "attention", causal + " window: 2" + kRope, Heads("out_in"), ""},
      {"attention_chunks", "attention", causal + " chunk: 4" + kRope, Heads("out_in"), ""},
      {"attention_slanted", "attention", causal + " softcap: 2 alibi: 0.5 alibi: 0.25 alibi: 0.125 alibi: 1",
       Heads("out_in"), ""},
      {"moe_out_in", "moe", moe, Experts("out_in"), ""},
      {"moe_in_out", "moe", moe + " score: SIGMOID renormalize: true", Experts("in_out"), ""},
      {"moe_bundled", "moe", moe, Experts("in_out"), "@y.gate_up = concat(@y.gate, @y.up) shards 4"},
      {"moe_interleaved", "moe", moe, Experts("out_in"), "@y.gate_up = interleave(@y.gate, @y.up)"},
      {"moe_by_groups",
       "moe",
       moe,
       {{"router", "out_in d_model=4 -> expert=4"},
        {"gate", "in_out expert_group=2; d_model=4 -> member=2, d_ff=8"},
        {"up", "in_out expert_group=2; d_model=4 -> member=2, d_ff=8"},
        {"down", "in_out expert_group=2; member=2, d_ff=8 -> d_model=4"}},
       ""},
      {"latent_absorbed",
       "latent_attention",
       "scale: 0.4 norm_eps: 0.001 absorbed: true rope { style: INTERLEAVED theta: 100 rotary_dim: 2 }",
       {{"q_nope", "out_in d_model=4 -> heads=2, nope_dim=3"},
        {"q_rope", "out_in d_model=4 -> heads=2, rope_dim=2"},
        {"kv_a", "out_in d_model=4 -> kv_lora=5"},
        {"k_rope", "out_in d_model=4 -> rope_dim=2"},
        {"kv_a_norm", "kv_lora=5"},
        {"k_b", "out_in kv_lora=5 -> heads=2, nope_dim=3"},
        {"v_b", "in_out kv_lora=5 -> heads=2, v_head_dim=4"},
        {"o", "out_in heads=2, v_head_dim=4 -> d_model=4"}},
       ""},
      {"short_conv",
       "short_conv",
       "",
       {{"b", "out_in d_model=4 -> channels=5"},
        {"c", "out_in d_model=4 -> channels=5"},
        {"x", "in_out d_model=4 -> channels=5"},
        {"taps", "tap=3, channels=5"},
        {"o", "out_in channels=5 -> d_model=4"}},
       ""},
      {"state_space",
       "state_space",
       "norm_eps: 0.001 min_step: 0.3",
       {{"z", "out_in d_model=4 -> heads=4, head_dim=3"},
        {"x", "out_in d_model=4 -> heads=4, head_dim=3"},
        {"b", "out_in d_model=4 -> state_groups=2, state=2"},
        {"c", "out_in d_model=4 -> state_groups=2, state=2"},
        {"dt", "out_in d_model=4 -> heads=4"},
        {"x_taps", "tap=3, heads=4, head_dim=3"},
        {"b_taps", "tap=3, state_groups=2, state=2"},
        {"c_taps", "tap=3, state_groups=2, state=2"},
        {"dt_bias", "heads=4"},
        {"a_log", "heads=4"},
        {"skip", "heads=4"},
        {"norm", "heads=4, head_dim=3"},
        {"o", "out_in heads=4, head_dim=3 -> d_model=4"}},
       ""},
      {"delta_rule",
       "delta_rule",
       "norm_eps: 0.001 scale: 0.5",
       {{"q", "out_in d_model=4 -> key_heads=2, key_dim=2"},
        {"k", "out_in d_model=4 -> key_heads=2, key_dim=2"},
        {"v", "out_in d_model=4 -> heads=4, value_dim=3"},
        {"z", "out_in d_model=4 -> heads=4, value_dim=3"},
        {"beta", "out_in d_model=4 -> heads=4"},
        {"decay", "out_in d_model=4 -> heads=4"},
        {"q_taps", "tap=4, key_heads=2, key_dim=2"},
        {"k_taps", "tap=4, key_heads=2, key_dim=2"},
        {"v_taps", "tap=4, heads=4, value_dim=3"},
        {"decay_bias", "heads=4"},
        {"a_log", "heads=4"},
        {"norm", "value_dim=3"},
        {"o", "out_in heads=4, value_dim=3 -> d_model=4"}},
       ""},
  };
}

}  // namespace

std::vector<GraphCase> GraphCases() {
  std::vector<GraphCase> cases;
  for (const Line& line : Lines()) cases.push_back({line.name, TextOf(line), false});
  for (const BlockCase& block : BlockCases()) cases.push_back({block.name, TextOf(block), block.op != "moe"});
  return cases;
}

}  // namespace twinforge
