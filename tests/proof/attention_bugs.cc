#include <cmath>
#include <vector>

#include "tests/proof/seeded_bugs.h"
#include "weights/build.h"

namespace twinforge {
namespace {

constexpr char kNative[] = "step { pad_head_dim { form: NATIVE multiple: 16 } }";
constexpr char kPortable[] = "step { pad_head_dim { form: PORTABLE multiple: 16 } }";
constexpr char kPadHeads[] = "step { pad_heads { multiple: 4 } }";
constexpr char kReplicate[] = "step { replicate_kv_heads { to_multiple: 6 } }";
constexpr char kWhole[] =
    "step { pad_heads { multiple: 4 } } step { replicate_kv_heads { to_multiple: 4 } } "
    "step { pad_head_dim { form: PORTABLE multiple: 16 } } step { pad_ffn { multiple: 8 } } "
    "step { pad_vocab { multiple: 8 mask: SUPPRESS_TOKENS } }";

std::function<void(Rewriter&)> Attention(std::string path, std::function<void(AttentionAttrs&)> change) {
  return Attrs(std::move(path), [=](OpAttrs& attrs) { change(*attrs.mutable_attention()); });
}

// Zeros moved from behind each half to behind both: right for a head that does not turn, wrong for one that
// turns in halves.
WeightPtr TailPadded(const Param& param, int64_t live) {
  const int at = param.type.Find("head_dim");
  const int64_t size = param.type.axes[at].size;
  const int64_t half = live / 2, pads = size / 2 - half;
  std::vector<int64_t> order;
  for (int64_t i = 0; i < live; ++i) order.push_back(i < half ? i : size / 2 + i - half);
  for (int64_t i = 0; i < 2 * pads; ++i) order.push_back(i < pads ? half + i : size / 2 + half + i - pads);
  return PermuteAxis(param.program, at, order);
}

// Query heads of `group` live ones per key/value head and pads at the end of each group, moved so that all
// pads lie at the end.
std::vector<int64_t> PadsLast(int64_t heads, int64_t kv_heads, int64_t live) {
  const int64_t group = heads / kv_heads;
  std::vector<int64_t> order, pads;
  for (int64_t h = 0; h < heads; ++h) (h % group < live ? order : pads).push_back(h);
  order.insert(order.end(), pads.begin(), pads.end());
  return order;
}

// a a b b -> a b a b
std::vector<int64_t> Alternating(int64_t size, int64_t kinds) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < size; ++i) order.push_back(i % kinds * (size / kinds) + i / kinds);
  return order;
}

std::vector<int64_t> Rotated(int64_t size) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < size; ++i) order.push_back((i + 1) % size);
  return order;
}

const auto kAlternate = [](int64_t size) { return Alternating(size, 2); };
const auto kPadsLast = [](int64_t heads) { return PadsLast(heads, 2, 3); };

// Fill places of an axis hold the value at `from` instead.
ProgramChange PadsRepeat(std::string axis, std::function<bool(int64_t)> is_pad, int64_t from) {
  return [=](const Graph&, const Param& param) {
    const int at = param.type.Find(axis);
    std::vector<int64_t> order;
    for (int64_t i = 0; i < param.type.axes[at].size; ++i) order.push_back(is_pad(i) ? from : i);
    std::vector<WeightPtr> parts;
    for (int64_t i : order) parts.push_back(Slice(param.program, at, i, 1));
    return Concat(at, std::move(parts));
  };
}

std::vector<SeededBug> RotaryBugs() {
  return {
      {"rotary base not adjusted", "llama", kPortable, 1, "layers.1",
       Attention("layers.1.attn", [](AttentionAttrs& a) { a.mutable_rope()->set_theta(500); })},
      {"rotary width not adjusted", "llama", kPortable, 1, "layers.1",
       Attention("layers.1.attn", [](AttentionAttrs& a) { a.mutable_rope()->set_rotary_dim(10); })},
      {"padding at the tail of a rotary head", "llama", kPortable, 1, "layers.0",
       Both(Program("layers.0.attn.q", [](const Graph&, const Param& p) { return TailPadded(p, 10); }),
            Program("layers.0.attn.k", [](const Graph&, const Param& p) { return TailPadded(p, 10); }))},
      {"interleaved taken for halves", "llama", "step { reorder_rope { style: TO_INTERLEAVED } }", 1,
       "layers.0",
       Attention("layers.0.attn", [](AttentionAttrs& a) { a.mutable_rope()->set_style(Rope::HALVES); })},
      {"keys reordered, queries not", "llama", "step { reorder_rope { style: TO_INTERLEAVED } }", 1,
       "layers.2",
       Program("layers.2.attn.q",
               [](const Graph&, const Param& p) {
                 return InterleaveToHalves(p.program, p.type.Find("head_dim"));
               })},
      {"frequency scaling lost", "llama_tied", "step { pad_ffn { multiple: 8 } }", 1, "layers.1",
       Attention("layers.1.attn", [](AttentionAttrs& a) { a.mutable_rope()->clear_scaling(); })},
      {"partial rotary head taken for a whole one", "phi3", kNative, 1, "layers.1",
       Attention("layers.1.attn", [](AttentionAttrs& a) { a.mutable_rope()->set_rotary_dim(8); })},
  };
}

std::vector<SeededBug> ScaleBugs() {
  return {
      {"wrong softmax scale", "llama", kNative, 1, "layers.1",
       Attention("layers.1.attn", [](AttentionAttrs& a) { a.set_scale(std::pow(16, -0.5)); })},
      {"query not rescaled for the padded head", "llama", kPortable, 1, "layers.1",
       Scaled("layers.1.attn.q", std::pow(1.6, -0.5))},
      {"gamma of a padded norm not scaled", "qwen3", kPortable, 1, "layers.1",
       Scaled("layers.1.attn.k_norm", std::pow(1.6, 0.5))},
      {"norm of a padded head divides by padding too", "qwen3", kNative, 1, "layers.0",
       Attention("layers.0.attn", [](AttentionAttrs& a) { a.set_qk_norm_dim(16); })},
      {"wrong eps inside attention", "qwen3", kWhole, 3, "layers.2",
       Attention("layers.2.attn", [](AttentionAttrs& a) { a.set_qk_norm_eps(a.qk_norm_eps() * 10); })},
      {"soft-cap of scores lost", "gemma2", kNative, 1, "layers.1",
       Attention("layers.1.attn", [](AttentionAttrs& a) { a.set_softcap(0); })},
      {"scale of its own taken for the usual one", "gemma2", kNative, 1, "layers.0",
       Attention("layers.0.attn", [](AttentionAttrs& a) { a.set_scale(std::pow(10, -0.5)); })},
  };
}

std::vector<SeededBug> HeadBugs() {
  return {
      {"head's padding lies behind all groups", "llama", kPadHeads, 1, "layers.1",
       Both(Reordered("layers.1.attn.q", "heads", kPadsLast),
            Reordered("layers.1.attn.o", "heads", kPadsLast))},
      {"output projection repeated in padded heads", "llama", kPadHeads, 1, "layers.1",
       Program("layers.1.attn.o", PadsRepeat(
                                      "heads", [](int64_t i) { return i % 4 == 3; }, 0))},
      {"output projection halved with repeated heads", "llama", kReplicate, 1, "layers.0",
       Scaled("layers.0.attn.o", 0.5)},
      {"key/value heads repeated in the wrong order", "llama", kReplicate, 1, "layers.1",
       Both(Reordered("layers.1.attn.k", "kv_heads", kAlternate),
            Reordered("layers.1.attn.v", "kv_heads", kAlternate))},
      {"values repeated in another order than keys", "llama", kReplicate, 1, "layers.2",
       Reordered("layers.2.attn.v", "kv_heads", kAlternate)},
      {"biases of keys not repeated in their order", "qwen2", kReplicate, 1, "layers.1",
       Reordered("layers.1.attn.k_bias", "kv_heads", kAlternate)},
      {"keys and values swapped", "gpt2", "step { fuse_qkv { } }", 1, "layers.1",
       Swapped("layers.1.attn.k", "layers.1.attn.v")},
      {"square kernel read the wrong way round", "gpt2", "step { orient_weights { in_out: 'o' } }", 1,
       "layers.0",
       Program("layers.0.attn.o",
               [](const Graph&, const Param& p) {
                 return Reshape(Transpose(Reshape(p.program, {12, 12}), {1, 0}), p.type.shape());
               })},
      {"query bias dropped", "llama_biases", "step { pad_ffn { multiple: 8 } }", 1, "layers.1",
       Dropped("layers.1.attn", "q_bias")},
      {"output bias dropped", "gpt_oss", kWhole, 2, "layers.1", Dropped("layers.1.attn", "o_bias")},
      {"sinks dropped", "gpt_oss", kNative, 1, "layers.0", Dropped("layers.0.attn", "sinks")},
      {"sinks off by one head", "gpt_oss", kPadHeads, 1, "layers.2",
       Reordered("layers.2.attn.sinks", "heads", Rotated)},
  };
}

std::vector<SeededBug> MaskBugs() {
  return {
      {"window off by one", "mistral", kNative, 1, "layers.1",
       Attention("layers.1.attn", [](AttentionAttrs& a) { a.set_window(a.window() + 1); })},
      {"window lost in one layer", "gemma2", kNative, 1, "layers.2",
       Attention("layers.2.attn", [](AttentionAttrs& a) { a.set_window(0); })},
      {"window given to a layer without one", "qwen2", kPadHeads, 1, "layers.0",
       Attention("layers.0.attn", [](AttentionAttrs& a) { a.set_window(8); })},
      {"causal mask lost", "gpt2", "step { fuse_qkv { } }", 1, "layers.1",
       Attention("layers.1.attn", [](AttentionAttrs& a) { a.set_causal(false); })},
  };
}

std::vector<SeededBug> LatentBugs() {
  const auto latent = [](std::function<void(LatentAttentionAttrs&)> change) {
    return Attrs("layers.1.attn", [=](OpAttrs& attrs) { change(*attrs.mutable_latent_attention()); });
  };
  return {
      {"latent attention scaled by the padded width", "deepseek_v3", kNative, 1, "layers.1",
       latent([](LatentAttentionAttrs& a) { a.set_scale(0.25); })},
      {"wrong eps of the latent norm", "deepseek_v3", kNative, 1, "layers.1",
       latent([](LatentAttentionAttrs& a) { a.set_norm_eps(a.norm_eps() * 10); })},
      {"latent key turned the other way", "deepseek_v3", kNative, 1, "layers.1",
       latent([](LatentAttentionAttrs& a) {
         a.mutable_rope()->set_style(a.rope().style() == Rope::HALVES ? Rope::INTERLEAVED : Rope::HALVES);
       })},
  };
}

}  // namespace

std::vector<SeededBug> AttentionBugs() {
  std::vector<SeededBug> bugs;
  for (const auto& some : {RotaryBugs(), ScaleBugs(), HeadBugs(), MaskBugs(), LatentBugs()})
    bugs.insert(bugs.end(), some.begin(), some.end());
  return bugs;
}

}  // namespace twinforge
