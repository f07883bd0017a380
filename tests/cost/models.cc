#include "tests/cost/models.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "ir/builder.h"
#include "weights/build.h"

namespace twinforge {
namespace {

struct NamedSize {
  const char* name;
  Sized size;
};

using Slots = std::vector<std::pair<std::string, Param>>;

class ModelMaker {
 public:
  explicit ModelMaker(const ModelSizes& sizes) : s_(sizes), builder_("model") {}

  Graph Make() {
    NodeId x = builder_.Input("tokens",
                              {DType::kI32, {{"batch", Dim::Symbol("batch")}, {"seq", Dim::Symbol("seq")}}});
    EmbeddingAttrs embedding;
    OpAttrs attrs;
    *attrs.mutable_embedding() = embedding;
    const Param table = Make("embed", s_.dtype, {}, {{"vocab", s_.vocab}}, {{"d_model", s_.d_model}});
    Slots tables = {{"table", table}};
    if (s_.positions > 0) {
      tables.push_back({"position_table", Make("positions", s_.dtype, {}, {{"positions", s_.positions}},
                                               {{"d_model", s_.d_model}})});
    }
    x = builder_.Op(OpKind::kEmbedding, "embed", {x}, attrs, std::move(tables));
    for (int64_t i = 0; i < s_.layers; ++i) x = Layer(absl::StrCat("layers.", i), i % 2 == 0, x);
    x = Norm("norm", x);
    Param head = Make("lm_head", s_.dtype, {}, {{"d_model", s_.d_model}}, {{"vocab", s_.vocab}});
    if (s_.tied) head.program = Transpose(table.program, {1, 0});
    OpAttrs head_attrs;
    head_attrs.mutable_lm_head();
    builder_.Output("logits", builder_.Op(OpKind::kLmHead, "lm_head", {x}, head_attrs, {{"head", head}}));
    absl::StatusOr<Graph> graph = builder_.Finish();
    TWIN_CHECK(graph.ok(), graph.status().ToString());
    return *std::move(graph);
  }

 private:
  static Param Make(const std::string& tensor, DType dtype, std::vector<NamedSize> lead,
                    std::vector<NamedSize> in, std::vector<NamedSize> out) {
    ParamType type{.dtype = dtype, .lead = static_cast<int>(lead.size()), .in = static_cast<int>(in.size())};
    for (const auto* part : {&lead, &in, &out}) {
      for (const NamedSize& axis : *part) type.axes.push_back({axis.name, axis.size.size, axis.size.logical});
    }
    Param param{.type = type};
    param.program = Source(tensor, dtype, type.shape());
    return param;
  }

  Param Kernel(const std::string& tensor, std::vector<NamedSize> in, std::vector<NamedSize> out) {
    return Make(tensor, s_.kernel_dtype, {}, std::move(in), std::move(out));
  }

  NodeId Norm(const std::string& path, NodeId x) {
    OpAttrs attrs;
    attrs.mutable_norm()->set_eps(1e-5);
    return builder_.Op(OpKind::kRmsNorm, path, {x}, attrs,
                       {{"scale", Make(path, s_.dtype, {}, {}, {{"d_model", s_.d_model}})}});
  }

  NodeId Mix(const std::string& path, bool mixes, NodeId x) {
    using Mixer = ModelSizes::Mixer;
    if (mixes && s_.mixer == Mixer::kShortConv) return ShortConv(path + ".conv", x);
    if (mixes && s_.mixer == Mixer::kStateSpace) return StateSpace(path + ".ssm", x);
    if (mixes && s_.mixer == Mixer::kDeltaRule) return DeltaRule(path + ".delta", x);
    return s_.kv_lora > 0 ? Latent(path + ".attn", x) : Attention(path + ".attn", x);
  }

  // A vector or an array of taps.
  std::pair<std::string, Param> Array(const std::string& path, const std::string& slot,
                                      std::vector<NamedSize> axes) {
    return {slot, Make(path + "." + slot, s_.dtype, {}, {}, std::move(axes))};
  }
  std::pair<std::string, Param> Matrix(const std::string& path, const std::string& slot,
                                       std::vector<NamedSize> in, std::vector<NamedSize> out) {
    return {slot, Kernel(path + "." + slot, std::move(in), std::move(out))};
  }

  NodeId ShortConv(const std::string& path, NodeId x) {
    const NamedSize d{"d_model", s_.d_model}, c{"channels", s_.d_model};
    OpAttrs attrs;
    attrs.mutable_short_conv();
    return builder_.Op(OpKind::kShortConv, path, {x}, attrs,
                       {Matrix(path, "b", {d}, {c}), Matrix(path, "c", {d}, {c}), Matrix(path, "x", {d}, {c}),
                        Array(path, "taps", {{"tap", s_.taps}, c}), Matrix(path, "o", {c}, {d})});
  }

  NodeId StateSpace(const std::string& path, NodeId x) {
    const NamedSize d{"d_model", s_.d_model}, h{"heads", s_.heads}, w{"head_dim", s_.head_dim};
    const NamedSize g{"state_groups", s_.groups}, n{"state", s_.state}, t{"tap", s_.taps};
    OpAttrs attrs;
    attrs.mutable_state_space()->set_norm_eps(1e-5);
    return builder_.Op(
        OpKind::kStateSpace, path, {x}, attrs,
        {Matrix(path, "z", {d}, {h, w}), Matrix(path, "x", {d}, {h, w}), Matrix(path, "b", {d}, {g, n}),
         Matrix(path, "c", {d}, {g, n}), Matrix(path, "dt", {d}, {h}), Array(path, "x_taps", {t, h, w}),
         Array(path, "b_taps", {t, g, n}), Array(path, "c_taps", {t, g, n}), Array(path, "dt_bias", {h}),
         Array(path, "a_log", {h}), Array(path, "skip", {h}), Array(path, "norm", {h, w}),
         Matrix(path, "o", {h, w}, {d})});
  }

  NodeId DeltaRule(const std::string& path, NodeId x) {
    const NamedSize d{"d_model", s_.d_model}, h{"heads", s_.heads}, w{"value_dim", s_.head_dim};
    const NamedSize g{"key_heads", s_.groups}, n{"key_dim", s_.state}, t{"tap", s_.taps};
    OpAttrs attrs;
    attrs.mutable_delta_rule()->set_norm_eps(1e-5);
    attrs.mutable_delta_rule()->set_scale(1);
    return builder_.Op(
        OpKind::kDeltaRule, path, {x}, attrs,
        {Matrix(path, "q", {d}, {g, n}), Matrix(path, "k", {d}, {g, n}), Matrix(path, "v", {d}, {h, w}),
         Matrix(path, "z", {d}, {h, w}), Matrix(path, "beta", {d}, {h}), Matrix(path, "decay", {d}, {h}),
         Array(path, "q_taps", {t, g, n}), Array(path, "k_taps", {t, g, n}), Array(path, "v_taps", {t, h, w}),
         Array(path, "decay_bias", {h}), Array(path, "a_log", {h}), Array(path, "norm", {w}),
         Matrix(path, "o", {h, w}, {d})});
  }

  NodeId Layer(const std::string& path, bool mixes, NodeId x) {
    const NodeId n = Norm(path + ".norm_in", x);
    const NodeId a = Mix(path, mixes, n);
    x = builder_.Add(path + ".add_attn", x, a);
    const NodeId m = Norm(path + ".norm_mlp", x);
    const NodeId f = s_.experts > 0 ? Moe(path + ".moe", m) : Mlp(path + ".mlp", m);
    return builder_.Add(path + ".add_mlp", x, f);
  }

  NodeId Attention(const std::string& path, NodeId x) {
    const NamedSize d{"d_model", s_.d_model}, h{"heads", s_.heads}, g{"kv_heads", s_.kv_heads};
    const NamedSize w{"head_dim", s_.head_dim};
    OpAttrs attrs;
    AttentionAttrs& a = *attrs.mutable_attention();
    a.set_scale(1);
    a.set_scale_rule(AttentionAttrs::EXPLICIT);
    a.set_causal(s_.causal);
    a.set_window(s_.window);
    a.set_chunk(s_.chunk);
    return builder_.Op(OpKind::kAttention, path, {x}, attrs,
                       {{"q", Kernel(path + ".q", {d}, {h, w})},
                        {"k", Kernel(path + ".k", {d}, {g, w})},
                        {"v", Kernel(path + ".v", {d}, {g, w})},
                        {"o", Kernel(path + ".o", {h, w}, {d})}});
  }

  NodeId Latent(const std::string& path, NodeId x) {
    const NamedSize d{"d_model", s_.d_model}, h{"heads", s_.heads}, ql{"q_lora", s_.q_lora},
        c{"kv_lora", s_.kv_lora};
    const NamedSize nope{"nope_dim", s_.nope_dim}, rope{"rope_dim", s_.rope_dim},
        v{"v_head_dim", s_.v_head_dim};
    OpAttrs attrs;
    LatentAttentionAttrs& a = *attrs.mutable_latent_attention();
    a.set_scale(1);
    a.set_scale_rule(AttentionAttrs::EXPLICIT);
    a.set_norm_eps(1e-6);
    a.mutable_rope()->set_style(Rope::INTERLEAVED);
    a.mutable_rope()->set_theta(10000);
    a.mutable_rope()->set_rotary_dim(s_.rope_dim);
    return builder_.Op(OpKind::kLatentAttention, path, {x}, attrs,
                       {{"q_a", Kernel(path + ".q_a", {d}, {ql})},
                        {"q_a_norm", Make(path + ".q_a_norm", s_.dtype, {}, {}, {ql})},
                        {"q_nope", Kernel(path + ".q_nope", {ql}, {h, nope})},
                        {"q_rope", Kernel(path + ".q_rope", {ql}, {h, rope})},
                        {"kv_a", Kernel(path + ".kv_a", {d}, {c})},
                        {"k_rope", Kernel(path + ".k_rope", {d}, {rope})},
                        {"kv_a_norm", Make(path + ".kv_a_norm", s_.dtype, {}, {}, {c})},
                        {"k_b", Kernel(path + ".k_b", {c}, {h, nope})},
                        {"v_b", Kernel(path + ".v_b", {c}, {h, v})},
                        {"o", Kernel(path + ".o", {h, v}, {d})}});
  }

  NodeId Mlp(const std::string& path, NodeId x) {
    const NamedSize d{"d_model", s_.d_model}, f{"d_ff", s_.d_ff};
    OpAttrs attrs;
    attrs.mutable_mlp()->set_act(SILU);
    return builder_.Op(OpKind::kGatedMlp, path, {x}, attrs,
                       {{"gate", Kernel(path + ".gate", {d}, {f})},
                        {"up", Kernel(path + ".up", {d}, {f})},
                        {"down", Kernel(path + ".down", {f}, {d})}});
  }

  NodeId Moe(const std::string& path, NodeId x) {
    const NamedSize d{"d_model", s_.d_model}, f{"d_ff", s_.d_ff}, sf{"shared_ff", s_.shared_ff};
    const NamedSize e{"expert", s_.experts}, g{"expert_group", s_.experts / s_.members},
        m{"member", s_.members};
    OpAttrs attrs;
    MoeAttrs& a = *attrs.mutable_moe();
    a.set_top_k(s_.top_k);
    a.mutable_expert()->set_act(SILU);
    a.mutable_shared()->set_act(SILU);
    const std::vector<NamedSize> lead = {s_.members > 1 ? g : e};
    const std::vector<NamedSize> wide =
        s_.members > 1 ? std::vector<NamedSize>{m, f} : std::vector<NamedSize>{f};
    Slots slots = {{"router", Kernel(path + ".router", {d}, {e})},
                   {"gate", Make(path + ".gate", s_.kernel_dtype, lead, {d}, wide)},
                   {"up", Make(path + ".up", s_.kernel_dtype, lead, {d}, wide)},
                   {"down", Make(path + ".down", s_.kernel_dtype, lead, wide, {d})}};
    if (s_.shared_ff > 0) {
      slots.push_back({"shared_gate", Kernel(path + ".shared_gate", {d}, {sf})});
      slots.push_back({"shared_up", Kernel(path + ".shared_up", {d}, {sf})});
      slots.push_back({"shared_down", Kernel(path + ".shared_down", {sf}, {d})});
    }
    return builder_.Op(OpKind::kMoe, path, {x}, attrs, std::move(slots));
  }

  const ModelSizes& s_;
  Builder builder_;
};

}  // namespace

Graph MakeModel(const ModelSizes& sizes) { return ModelMaker(sizes).Make(); }

ModelSizes Llama8B() {
  return {.layers = 32,
          .d_model = 4096,
          .heads = 32,
          .kv_heads = 8,
          .head_dim = 128,
          .d_ff = 14336,
          .vocab = 128256};
}

}  // namespace twinforge
