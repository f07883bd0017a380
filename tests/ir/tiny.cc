#include "tests/ir/tiny.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "weights/build.h"

namespace twinforge {
namespace {

Type Hidden(int64_t d_model) {
  return {DType::kBF16,
          {{"batch", Dim::Symbol("batch"), 0}, {"seq", Dim::Symbol("seq"), 0}, {"d_model", Dim(d_model), 0}}};
}

std::vector<std::vector<std::string>> Extents(const std::string& text) {
  std::vector<std::vector<std::string>> extents;
  for (absl::string_view extent : absl::StrSplit(text, ' ')) {
    extents.push_back(absl::StrSplit(extent, '*'));
  }
  return extents;
}

template <typename T>
T Must(absl::StatusOr<T> value) {
  TWIN_CHECK(value.ok(), value.status().ToString());
  return *std::move(value);
}

}  // namespace

ParamType TypeOf(const std::string& axes) {
  ParamType type;
  std::string text = absl::StrReplaceAll(axes, {{"->", " -> "}, {";", " ; "}, {",", " "}});
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    const int rank = static_cast<int>(type.axes.size());
    if (word == ";") {
      type.lead = rank;
    } else if (word == "->") {
      type.in = rank - type.lead;
    } else {
      const std::pair<std::string, std::string> axis = absl::StrSplit(word, '=');
      int64_t size = 0;
      TWIN_CHECK(absl::SimpleAtoi(axis.second, &size), "a size is a number");
      type.axes.push_back({axis.first, size, size});
    }
  }
  return type;
}

LayoutTensor TensorOf(std::string name, std::vector<std::pair<std::string, std::string>> parts,
                      int64_t join_axis, Bundle::Arrangement arrangement) {
  LayoutTensor tensor;
  tensor.name = std::move(name);
  for (auto& [role, extents] : parts) tensor.parts.push_back({role, Extents(extents), 0});
  tensor.join_axis = join_axis;
  tensor.arrangement = arrangement;
  return tensor;
}

LayoutTensor ExpertsOf(std::string name, std::string name_end, std::string role, std::string extents,
                       int64_t experts) {
  LayoutTensor run = TensorOf(std::move(name), {{std::move(role), std::move(extents)}});
  run.name_end = std::move(name_end);
  run.parts[0].experts = experts;
  return run;
}

TinyModel TinyOf(const OneOp& op, const Layout& layout, std::vector<Bundle> bundles) {
  std::map<std::string, ParamType> types;
  int64_t d_model = 0;
  for (const auto& [slot, axes] : op.slots) {
    ParamType type = TypeOf(axes);
    if (type.Find("d_model") >= 0) d_model = type.Get("d_model").size;
    types[RoleOf(op.op, "m", slot)] = std::move(type);
  }
  TinyModel model;
  std::map<std::string, Storage> storage;
  for (const LayoutTensor& tensor : layout.tensors) {
    const Shape shape = Must(StoredShape(tensor, types));
    for (int64_t i = 0; i < tensor.count(); ++i)
      model.stored[tensor.NameAt(i)] = Source(tensor.NameAt(i), DType::kBF16, shape);
    for (const LayoutPart& part : tensor.parts) storage[part.role] = StorageOf(part, types.at(part.role));
  }
  const std::map<std::string, WeightPtr> programs = ProgramsFromFiles(layout, types, model.stored);
  Builder builder("tiny");
  const NodeId x = builder.Input("x", Hidden(d_model));
  std::vector<std::pair<std::string, Param>> params;
  for (const auto& [slot, axes] : op.slots) {
    const std::string role = RoleOf(op.op, "m", slot);
    params.emplace_back(slot, Param{"", types.at(role), programs.at(role), storage.at(role)});
  }
  builder.Output("y", builder.Op(op.op, "m", {x}, op.attrs, std::move(params)));
  for (Bundle& bundle : bundles) builder.AddBundle(std::move(bundle));
  model.graph = Must(builder.Finish());
  return model;
}

OpAttrs AttentionOf(int64_t head_dim, double theta) {
  OpAttrs attrs;
  attrs.mutable_attention()->set_scale(std::pow(head_dim, -0.5));
  attrs.mutable_attention()->set_causal(true);
  if (theta > 0) {
    Rope* rope = attrs.mutable_attention()->mutable_rope();
    rope->set_style(Rope::HALVES);
    rope->set_theta(theta);
    rope->set_rotary_dim(head_dim);
    rope->set_max_position_embeddings(2048);
  }
  return attrs;
}

Layout LlamaLayout() {
  using Fact = ConfigBinding::Fact;
  Layout layout;
  layout.name = "hub";
  layout.tensors = {
      TensorOf("embed_tokens", {{"embed", "vocab d_model"}}),
      TensorOf("input_layernorm", {{"layers.0.norm_in", "d_model"}}),
      TensorOf("q_proj", {{"layers.0.attn.q", "heads*head_dim d_model"}}),
      TensorOf("k_proj", {{"layers.0.attn.k", "kv_heads*head_dim d_model"}}),
      TensorOf("v_proj", {{"layers.0.attn.v", "kv_heads*head_dim d_model"}}),
      TensorOf("o_proj", {{"layers.0.attn.o", "d_model heads*head_dim"}}),
      TensorOf("gate_proj", {{"layers.0.mlp.gate", "d_ff d_model"}}),
      TensorOf("up_proj", {{"layers.0.mlp.up", "d_ff d_model"}}),
      TensorOf("down_proj", {{"layers.0.mlp.down", "d_model d_ff"}}),
      TensorOf("lm_head", {{"lm_head", "vocab d_model"}}),
  };
  layout.tensors.back().optional = true;
  layout.ties = {{"lm_head", "embed", "tie_word_embeddings", false}};
  layout.bindings = {
      {.key = "hidden_size", .fact = Fact::kAxis, .axis = "d_model"},
      {.key = "num_attention_heads", .fact = Fact::kAxis, .axis = "heads"},
      {.key = "num_key_value_heads", .fact = Fact::kAxis, .axis = "kv_heads"},
      {.key = "head_dim", .fact = Fact::kAxis, .axis = "head_dim", .implied = 16},
      {.key = "intermediate_size", .fact = Fact::kAxis, .axis = "d_ff"},
      {.key = "vocab_size", .fact = Fact::kAxis, .axis = "vocab"},
      {.key = "rope_theta", .fact = Fact::kRopeTheta, .only_if_present = true, .implied = 10000},
      {.key = "rope_parameters.rope_theta",
       .fact = Fact::kRopeTheta,
       .only_if_present = true,
       .implied = 10000},
      {.key = "rms_norm_eps", .fact = Fact::kNormEps},
      {.key = "num_hidden_layers", .fact = Fact::kLayers},
      {.key = "torch_dtype", .fact = Fact::kDType, .only_if_present = true},
  };
  Carrier granite;
  granite.model_type = "granite";
  granite.bindings = {{.key = "attention_multiplier", .fact = Fact::kSoftmaxScale},
                      {.key = "logits_scaling", .fact = Fact::kFixed, .text = "1.0"}};
  layout.carriers = {granite};
  return layout;
}

const char* LlamaConfig(bool tied) {
  return tied
             ? R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
 "intermediate_size": 96, "vocab_size": 300, "rope_theta": 1e4, "rms_norm_eps": 1e-05, "num_hidden_layers": 1,
 "torch_dtype": "bfloat16", "tie_word_embeddings": true, "bos_token_id": 1})"
             : R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
 "intermediate_size": 96, "vocab_size": 300, "rope_parameters": {"rope_theta": 10000.0}, "rms_norm_eps": 0.00001,
 "num_hidden_layers": 1, "head_dim": null})";
}

Graph TinyLlama(bool tied) {
  const std::map<std::string, ParamType> types = {
      {"embed", TypeOf("vocab=300 -> d_model=64")},
      {"layers.0.norm_in", TypeOf("d_model=64")},
      {"layers.0.attn.q", TypeOf("d_model=64 -> heads=4, head_dim=16")},
      {"layers.0.attn.k", TypeOf("d_model=64 -> kv_heads=2, head_dim=16")},
      {"layers.0.attn.v", TypeOf("d_model=64 -> kv_heads=2, head_dim=16")},
      {"layers.0.attn.o", TypeOf("heads=4, head_dim=16 -> d_model=64")},
      {"layers.0.mlp.gate", TypeOf("d_model=64 -> d_ff=96")},
      {"layers.0.mlp.up", TypeOf("d_model=64 -> d_ff=96")},
      {"layers.0.mlp.down", TypeOf("d_ff=96 -> d_model=64")},
      {"lm_head", TypeOf("d_model=64 -> vocab=300")},
  };
  const Layout layout = LlamaLayout();
  StoredTensors stored;
  std::map<std::string, Storage> storage;
  for (const LayoutTensor& tensor : layout.tensors) {
    const LayoutPart& part = tensor.parts[0];
    storage[part.role] = StorageOf(part, types.at(part.role));
    if (tied && tensor.name == "lm_head") continue;
    stored[tensor.name] = Source(tensor.name, DType::kBF16, Must(StoredShape(tensor, types)));
  }
  const std::map<std::string, WeightPtr> programs = ProgramsFromFiles(layout, types, stored);
  auto param = [&](const std::string& role) {
    return Param{"", types.at(role), programs.at(role), storage.at(role)};
  };
  Builder b("llama");
  const NodeId tokens =
      b.Input("tokens", {DType::kI32, {{"batch", Dim::Symbol("batch"), 0}, {"seq", Dim::Symbol("seq"), 0}}});
  OpAttrs embedding, norm, mlp, head;
  embedding.mutable_embedding();
  norm.mutable_norm()->set_eps(1e-5);
  mlp.mutable_mlp()->set_act(SILU);
  head.mutable_lm_head();
  const NodeId x = b.Op(OpKind::kEmbedding, "embed", {tokens}, embedding, {{"table", param("embed")}});
  const NodeId n =
      b.Op(OpKind::kRmsNorm, "layers.0.norm_in", {x}, norm, {{"scale", param("layers.0.norm_in")}});
  const NodeId a = b.Op(OpKind::kAttention, "layers.0.attn", {n}, AttentionOf(16, 10000),
                        {{"o", param("layers.0.attn.o")},
                         {"q", param("layers.0.attn.q")},
                         {"k", param("layers.0.attn.k")},
                         {"v", param("layers.0.attn.v")}});
  const NodeId r = b.Add("layers.0.add_attn", x, a);
  const NodeId m = b.Op(OpKind::kGatedMlp, "layers.0.mlp", {r}, mlp,
                        {{"gate", param("layers.0.mlp.gate")},
                         {"up", param("layers.0.mlp.up")},
                         {"down", param("layers.0.mlp.down")}});
  const NodeId y = b.Add("layers.0.add_mlp", r, m);
  b.Output("logits", b.Op(OpKind::kLmHead, "lm_head", {y}, head, {{"head", param("lm_head")}}));
  return Must(b.Finish());
}

}  // namespace twinforge
