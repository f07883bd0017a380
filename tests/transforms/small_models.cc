#include "tests/transforms/small_models.h"

#include <cmath>
#include <functional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "ir/builder.h"
#include "ir/rope.h"
#include "weights/build.h"

namespace twinforge {
namespace {

using Params = std::vector<std::pair<std::string, Param>>;

// What distinguishes one kind of model from the next.
struct Kind {
  std::string name;
  DType dtype = DType::kF32;
  bool layer_norm = false, tied = false, causal = true, head = true, head_bias = false, qkv_bias = false;
  bool qk_norm = false, own_scale = false, sinks = false, per_expert = false, in_out = false,
       post_norm = false;
  double norm_offset = 0, softcap = 0;
  Rope::Style rope = Rope::HALVES;
  bool partial = false;
  enum Ffn { kMlp, kGated, kMoe } ffn = kGated;
  bool embedding_scale = false;  // rows times the root of the width, as gemma's
  bool clamped = false, latent = false, shared = false, bundles = false;
};

class Maker {
 public:
  Maker(const Kind& kind, const SmallSizes& sizes) : kind_(kind), sizes_(sizes), b_(kind.name) {}

  Graph Make() {
    const Axis batch{"batch", Dim::Symbol("batch")}, seq{"seq", Dim::Symbol("seq")};
    NodeId x = b_.Op(OpKind::kEmbedding, "embed", {b_.Input("tokens", {DType::kI32, {batch, seq}})},
                     Embedding(), {{"table", Kernel("embed", {}, {Vocab()}, {Model()}, true)}});
    for (int64_t i = 0; i < sizes_.layers; ++i) x = Layer(absl::StrCat("layers.", i), x);
    x = Norm("norm", x);
    if (kind_.head) x = Head(x);
    b_.Output("out", x);
    absl::StatusOr<Graph> graph = b_.Finish();
    TWIN_CHECK(graph.ok(), absl::StrCat(kind_.name, ": ", graph.status().message()));
    return *std::move(graph);
  }

 private:
  ParamAxis Of(const char* name, int64_t size) const { return {name, size, size}; }
  ParamAxis Model() const { return Of("d_model", sizes_.d_model); }
  ParamAxis Vocab() const { return Of("vocab", sizes_.vocab); }
  ParamAxis Heads() const { return Of("heads", sizes_.heads); }
  ParamAxis KvHeads() const { return Of("kv_heads", sizes_.kv_heads); }
  ParamAxis HeadDim() const { return Of("head_dim", sizes_.head_dim); }
  ParamAxis Expert() const { return Of("expert", sizes_.experts); }
  ParamAxis Ff() const { return Of("d_ff", sizes_.d_ff); }

  // A kernel over a source that is a matrix (or a stack of them) on disk.
  Param Kernel(const std::string& role, std::vector<ParamAxis> lead, std::vector<ParamAxis> in,
               std::vector<ParamAxis> out, bool in_out) const {
    Param param;
    param.role = role;
    param.type.dtype = kind_.dtype;
    param.type.lead = static_cast<int>(lead.size());
    param.type.in = static_cast<int>(in.size());
    Shape stored, split;
    std::vector<int64_t> perm;
    const auto merged = [](const std::vector<ParamAxis>& axes) {
      int64_t product = 1;
      for (const ParamAxis& axis : axes) product *= axis.size;
      return product;
    };
    for (const ParamAxis& axis : lead) {
      perm.push_back(static_cast<int64_t>(stored.size()));
      stored.push_back(axis.size);
      split.push_back(axis.size);
    }
    stored.push_back(merged(in_out ? in : out));
    stored.push_back(merged(in_out ? out : in));
    for (const auto* axes : {in_out ? &in : &out, in_out ? &out : &in}) {
      for (const ParamAxis& axis : *axes) split.push_back(axis.size);
    }
    const int64_t at_in = static_cast<int64_t>(lead.size() + (in_out ? 0 : out.size()));
    const int64_t at_out = static_cast<int64_t>(lead.size() + (in_out ? in.size() : 0));
    for (size_t i = 0; i < in.size(); ++i) perm.push_back(at_in + static_cast<int64_t>(i));
    for (size_t i = 0; i < out.size(); ++i) perm.push_back(at_out + static_cast<int64_t>(i));
    param.program = Transpose(Reshape(Source(role, kind_.dtype, stored), split), perm);
    for (const auto* axes : {&lead, &in, &out})
      param.type.axes.insert(param.type.axes.end(), axes->begin(), axes->end());
    param.storage.orientation = in_out ? Orientation::kInOut : Orientation::kOutIn;
    return param;
  }

  Param Vector(const std::string& role, std::vector<ParamAxis> axes, int lead = 0) const {
    Param param;
    param.role = role;
    param.type = {kind_.dtype, std::move(axes), lead, 0};
    param.program = Source(role, kind_.dtype, param.type.shape());
    return param;
  }

  OpAttrs Embedding() const {
    OpAttrs attrs;
    attrs.mutable_embedding();
    if (kind_.embedding_scale) {
      attrs.mutable_embedding()->set_scale(std::sqrt(static_cast<double>(sizes_.d_model)));
    }
    return attrs;
  }

  NodeId Norm(const std::string& path, NodeId x) {
    OpAttrs attrs;
    attrs.mutable_norm()->set_eps(1e-5);
    attrs.mutable_norm()->set_offset(kind_.norm_offset);
    Params params = {{"scale", Vector(path, {Model()})}};
    if (kind_.layer_norm) params.emplace_back("bias", Vector(path + ".bias", {Model()}));
    return b_.Op(kind_.layer_norm ? OpKind::kLayerNorm : OpKind::kRmsNorm, path, {x}, attrs,
                 std::move(params));
  }

  NodeId Layer(const std::string& path, NodeId x) {
    NodeId a = Norm(path + ".norm_in", x);
    a = kind_.latent ? Latent(path + ".attn", a) : Attention(path + ".attn", a);
    if (kind_.post_norm) a = Norm(path + ".norm_attn", a);
    x = b_.Add(path + ".add_attn", x, a);
    NodeId f = Norm(path + ".norm_ffn", x);
    f = kind_.ffn == Kind::kMoe ? Moe(path + ".moe", f) : Mlp(path + ".mlp", f);
    return b_.Add(path + ".add_ffn", x, f);
  }

  void FillRope(Rope& rope, int64_t width) const {
    rope.set_style(kind_.rope);
    if (kind_.rope == Rope::ABSENT) return;
    rope.set_theta(10000);
    rope.set_rotary_dim(kind_.partial ? width / 4 * 2 : width);
    rope.set_max_position_embeddings(64);
  }

  NodeId Attention(const std::string& path, NodeId x) {
    OpAttrs attrs;
    AttentionAttrs& a = *attrs.mutable_attention();
    a.set_causal(kind_.causal);
    a.set_scale(kind_.own_scale ? 0.3 : DefaultScale(sizes_.head_dim));
    a.set_scale_rule(kind_.own_scale ? AttentionAttrs::EXPLICIT : AttentionAttrs::HEAD_DIM);
    a.set_softcap(kind_.softcap);
    FillRope(*a.mutable_rope(), sizes_.head_dim);
    const bool in_out = kind_.in_out;
    Params params = {{"q", Kernel(path + ".q", {}, {Model()}, {Heads(), HeadDim()}, in_out)},
                     {"k", Kernel(path + ".k", {}, {Model()}, {KvHeads(), HeadDim()}, in_out)},
                     {"v", Kernel(path + ".v", {}, {Model()}, {KvHeads(), HeadDim()}, in_out)},
                     {"o", Kernel(path + ".o", {}, {Heads(), HeadDim()}, {Model()}, in_out)}};
    if (kind_.qkv_bias) {
      params.emplace_back("q_bias", Vector(path + ".q_bias", {Heads(), HeadDim()}));
      params.emplace_back("k_bias", Vector(path + ".k_bias", {KvHeads(), HeadDim()}));
      params.emplace_back("v_bias", Vector(path + ".v_bias", {KvHeads(), HeadDim()}));
      params.emplace_back("o_bias", Vector(path + ".o_bias", {Model()}));
    }
    if (kind_.qk_norm) {
      a.set_qk_norm_eps(1e-5);
      a.set_qk_norm_offset(kind_.norm_offset);
      params.emplace_back("q_norm", Vector(path + ".q_norm", {HeadDim()}));
      params.emplace_back("k_norm", Vector(path + ".k_norm", {HeadDim()}));
    }
    if (kind_.sinks) params.emplace_back("sinks", Vector(path + ".sinks", {Heads()}));
    const NodeId y = b_.Op(OpKind::kAttention, path, {x}, attrs, std::move(params));
    if (kind_.bundles) Join(path, ".qkv", {".q", ".k", ".v"}, Bundle::Arrangement::kConcat);
    return y;
  }

  void Join(const std::string& path, const char* name, std::vector<std::string> members,
            Bundle::Arrangement how) {
    Bundle bundle;
    bundle.role = path + name;
    for (const std::string& member : members) bundle.members.push_back(path + member);
    bundle.arrangement = how;
    b_.AddBundle(bundle);
  }

  NodeId Latent(const std::string& path, NodeId x) {
    const ParamAxis q_lora = Of("q_lora", 7), kv_lora = Of("kv_lora", 5), rope = Of("rope_dim", 4);
    const ParamAxis nope = Of("nope_dim", sizes_.head_dim), v = Of("v_head_dim", sizes_.head_dim - 1);
    OpAttrs attrs;
    LatentAttentionAttrs& a = *attrs.mutable_latent_attention();
    a.set_scale(DefaultLatentScale(nope.size + rope.size, {}));
    a.set_norm_eps(1e-5);
    FillRope(*a.mutable_rope(), rope.size);
    return b_.Op(OpKind::kLatentAttention, path, {x}, attrs,
                 {{"q_a", Kernel(path + ".q_a", {}, {Model()}, {q_lora}, false)},
                  {"q_a_norm", Vector(path + ".q_a_norm", {q_lora})},
                  {"q_nope", Kernel(path + ".q_nope", {}, {q_lora}, {Heads(), nope}, false)},
                  {"q_rope", Kernel(path + ".q_rope", {}, {q_lora}, {Heads(), rope}, false)},
                  {"kv_a", Kernel(path + ".kv_a", {}, {Model()}, {kv_lora}, false)},
                  {"k_rope", Kernel(path + ".k_rope", {}, {Model()}, {rope}, false)},
                  {"kv_a_norm", Vector(path + ".kv_a_norm", {kv_lora})},
                  {"k_b", Kernel(path + ".k_b", {}, {kv_lora}, {Heads(), nope}, false)},
                  {"v_b", Kernel(path + ".v_b", {}, {kv_lora}, {Heads(), v}, false)},
                  {"o", Kernel(path + ".o", {}, {Heads(), v}, {Model()}, false)}});
  }

  void FillMlp(MlpAttrs& attrs) const {
    attrs.set_act(kind_.layer_norm ? GELU_TANH : SILU);
    if (!kind_.clamped) return;
    attrs.set_clamp_limit(7);
    attrs.set_clamp_alpha(1.702);
    attrs.set_up_offset(1);
  }

  NodeId Mlp(const std::string& path, NodeId x) {
    OpAttrs attrs;
    FillMlp(*attrs.mutable_mlp());
    const bool in_out = kind_.in_out;
    Params params;
    if (kind_.ffn == Kind::kGated)
      params.emplace_back("gate", Kernel(path + ".gate", {}, {Model()}, {Ff()}, in_out));
    params.emplace_back("up", Kernel(path + ".up", {}, {Model()}, {Ff()}, in_out));
    params.emplace_back("down", Kernel(path + ".down", {}, {Ff()}, {Model()}, in_out));
    if (kind_.qkv_bias) {
      if (kind_.ffn == Kind::kGated) params.emplace_back("gate_bias", Vector(path + ".gate_bias", {Ff()}));
      params.emplace_back("up_bias", Vector(path + ".up_bias", {Ff()}));
      params.emplace_back("down_bias", Vector(path + ".down_bias", {Model()}));
    }
    return b_.Op(kind_.ffn == Kind::kGated ? OpKind::kGatedMlp : OpKind::kMlp, path, {x}, attrs,
                 std::move(params));
  }

  NodeId Moe(const std::string& path, NodeId x) {
    OpAttrs attrs;
    MoeAttrs& a = *attrs.mutable_moe();
    a.set_top_k(2);
    a.set_renormalize(true);
    if (kind_.shared) a.set_score(MoeAttrs::SIGMOID);
    if (kind_.clamped) a.set_score(MoeAttrs::SOFTMAX_TOP);
    FillMlp(*a.mutable_expert());
    Params params = {{"router", Kernel(path + ".router", {}, {Model()}, {Expert()}, false)},
                     {"gate", Kernel(path + ".gate", {Expert()}, {Model()}, {Ff()}, kind_.in_out)},
                     {"up", Kernel(path + ".up", {Expert()}, {Model()}, {Ff()}, kind_.in_out)},
                     {"down", Kernel(path + ".down", {Expert()}, {Ff()}, {Model()}, kind_.in_out)}};
    if (kind_.per_expert) {
      for (size_t i = 1; i < params.size(); ++i) params[i].second.storage.per_expert = true;
    }
    if (kind_.clamped) {
      params.emplace_back("router_bias", Vector(path + ".router_bias", {Expert()}));
      params.emplace_back("gate_bias", Vector(path + ".gate_bias", {Expert(), Ff()}, 1));
      params.emplace_back("up_bias", Vector(path + ".up_bias", {Expert(), Ff()}, 1));
      params.emplace_back("down_bias", Vector(path + ".down_bias", {Expert(), Model()}, 1));
    }
    if (kind_.shared) {
      const ParamAxis ff = Of("shared_ff", sizes_.d_ff + 3);
      FillMlp(*a.mutable_shared());
      params.emplace_back("router_correction", Vector(path + ".router_correction", {Expert()}));
      params.emplace_back("shared_gate", Kernel(path + ".shared_gate", {}, {Model()}, {ff}, false));
      params.emplace_back("shared_up", Kernel(path + ".shared_up", {}, {Model()}, {ff}, false));
      params.emplace_back("shared_down", Kernel(path + ".shared_down", {}, {ff}, {Model()}, false));
    }
    const NodeId y = b_.Op(OpKind::kMoe, path, {x}, attrs, std::move(params));
    if (kind_.clamped) {
      Join(path, ".gate_up", {".gate", ".up"}, Bundle::Arrangement::kInterleave);
      Join(path, ".gate_up_bias", {".gate_bias", ".up_bias"}, Bundle::Arrangement::kInterleave);
    }
    return y;
  }

  NodeId Head(NodeId x) {
    OpAttrs attrs;
    attrs.mutable_lm_head()->set_softcap(kind_.softcap);
    Param head = Kernel("lm_head", {}, {Model()}, {Vocab()}, false);
    if (kind_.tied)
      head.program = Transpose(Source("embed", kind_.dtype, {sizes_.vocab, sizes_.d_model}), {1, 0});
    Params params = {{"head", std::move(head)}};
    if (kind_.head_bias) params.emplace_back("bias", Vector("lm_head.bias", {Vocab()}));
    return b_.Op(OpKind::kLmHead, "lm_head", {x}, attrs, std::move(params));
  }

  Kind kind_;
  SmallSizes sizes_;
  Builder b_;
};

std::vector<Kind> Kinds() {
  return {
      {.name = "llama", .qkv_bias = true},
      {.name = "llama_tied_bf16", .dtype = DType::kBF16, .tied = true},
      {.name = "qwen3", .qk_norm = true},
      {.name = "qwen3_tied", .tied = true, .qk_norm = true},
      {.name = "gemma3",
       .tied = true,
       .qk_norm = true,
       .own_scale = true,
       .post_norm = true,
       .norm_offset = 1,
       .softcap = 30,
       .embedding_scale = true},
      {.name = "glm", .qkv_bias = true, .rope = Rope::INTERLEAVED, .partial = true},
      {.name = "ernie", .rope = Rope::INTERLEAVED},
      {.name = "gpt2",
       .layer_norm = true,
       .tied = true,
       .qkv_bias = true,
       .in_out = true,
       .rope = Rope::ABSENT,
       .ffn = Kind::kMlp,
       .bundles = true},
      {.name = "bert",
       .layer_norm = true,
       .causal = false,
       .head_bias = true,
       .qkv_bias = true,
       .rope = Rope::ABSENT,
       .ffn = Kind::kMlp},
      {.name = "encoder",
       .layer_norm = true,
       .causal = false,
       .head = false,
       .rope = Rope::ABSENT,
       .ffn = Kind::kMlp},
      {.name = "mixtral", .per_expert = true, .ffn = Kind::kMoe},
      {.name = "gpt_oss",
       .qkv_bias = true,
       .sinks = true,
       .in_out = true,
       .ffn = Kind::kMoe,
       .clamped = true},
      {.name = "deepseek", .rope = Rope::INTERLEAVED, .ffn = Kind::kMoe, .latent = true, .shared = true},
  };
}

}  // namespace

std::vector<SmallModel> SmallModels(const SmallSizes& sizes) {
  std::vector<SmallModel> models;
  for (Kind kind : Kinds()) {
    SmallSizes own = sizes;
    if (sizes.wide) kind.dtype = DType::kF64;
    if (kind.bundles) own.kv_heads = own.heads;  // gpt2 has no grouped queries
    models.push_back({kind.name, Maker(kind, own).Make()});
  }
  return models;
}

}  // namespace twinforge
