// Norms, feed-forward blocks, embedding and head.
#include "absl/strings/str_cat.h"
#include "reference/einsum.h"
#include "reference/jax_emitter.h"
#include "reference/python.h"

namespace twinforge {
namespace {

// The last lines of a norm: `value` (wide) times scale, rounded to x's dtype where the graph rounds.
std::string Scaled(absl::string_view value, const std::string& offset, const std::string& widen) {
  if (offset.empty()) return absl::StrCat("(", value, ").astype(x.dtype) * scale.astype(x.dtype)");
  return absl::StrCat("(", value, " * (", offset, " + ", widen, "(scale))).astype(x.dtype)");
}

}  // namespace

std::string JaxEmitter::RmsNorm(const Node& node, const Rms& norm, absl::string_view x,
                                absl::string_view scale) {
  const ParamAxis& axis = TypeOf(node, norm.slot).axes[0];
  const int64_t width = norm.width != 0 ? norm.width : axis.logical;
  const std::string widen = Widen();
  const std::string offset =
      norm.offset == 0 ? "" : config_.Float("norm_offset", norm.offset, "norms multiply by offset + scale");
  std::string mean = "jnp.mean(wide * wide, axis=-1, keepdims=True)";
  if (width != axis.size) {
    mean = absl::StrCat(
        "jnp.sum(wide * wide, axis=-1, keepdims=True) / ",
        config_.Int(absl::StrCat(axis.name, "_norm"), width, "places that a norm counts; the rest are 0"));
  }
  const std::string name = functions_.Define(
      "rms_norm", absl::StrCat("def $(x, scale, eps):\n",
                               "    \"\"\"x / sqrt(mean of its squares + eps) along the last axis, in "
                               "float32; times scale.\"\"\"\n",
                               "    wide = ", widen, "(x)\n    mean = ", mean, "\n    return ",
                               Scaled("wide * jax.lax.rsqrt(mean + eps)", offset, widen), "\n"));
  return absl::StrCat(name, "(", x, ", ", scale, ", ", config_.Float(norm.eps_name, norm.eps), ")");
}

std::string JaxEmitter::LayerNorm(const Node& node, absl::string_view x, absl::string_view p) {
  const NormAttrs& attrs = node.attrs->norm();
  const ParamAxis& axis = TypeOf(node, "scale").axes[0];
  const int64_t width = attrs.norm_dim() != 0 ? attrs.norm_dim() : axis.logical;
  const std::string widen = Widen();
  std::string centre = "    centred = wide - jnp.mean(wide, axis=-1, keepdims=True)\n";
  std::string variance = "jnp.mean(centred * centred, axis=-1, keepdims=True)";
  if (width != axis.size) {
    const std::string count =
        config_.Int(absl::StrCat(axis.name, "_norm"), width, "places that a norm counts; the rest are 0");
    centre = absl::StrCat("    counted = jnp.arange(x.shape[-1]) < ", count, "\n",
                          "    mean = jnp.sum(wide * counted, axis=-1, keepdims=True) / ", count, "\n",
                          "    centred = (wide - mean) * counted\n");
    variance = absl::StrCat("jnp.sum(centred * centred, axis=-1, keepdims=True) / ", count);
  }
  std::string scale = absl::StrCat(widen, "(scale)");
  if (attrs.offset() != 0)
    scale =
        absl::StrCat("(", config_.Float("norm_offset", attrs.offset(), "norms multiply by offset + scale"),
                     " + ", scale, ")");
  const bool bias = node.Has("bias");
  const std::string name = functions_.Define(
      "layer_norm",
      absl::StrCat("def $(x, scale, ", bias ? "bias, " : "", "eps):\n",
                   "    \"\"\"(x - mean) / sqrt(variance + eps) * scale", bias ? " + bias" : "",
                   ", in float32.\"\"\"\n", "    wide = ", widen, "(x)\n", centre,
                   "    variance = ", variance, "\n    y = centred * jax.lax.rsqrt(variance + eps) * ", scale,
                   bias ? absl::StrCat(" + ", widen, "(bias)") : "", "\n    return y.astype(x.dtype)\n"));
  return absl::StrCat(name, "(", x, ", ", Slot(node, "scale", p), bias ? ", " : "",
                      bias ? Slot(node, "bias", p) : "", ", ", config_.Float("norm_eps", attrs.eps()), ")");
}

std::string JaxEmitter::Activate(Activation act) {
  absl::string_view name = "sigmoid", value = "jax.nn.sigmoid(wide)";
  switch (act) {
    case SILU:
      name = "silu", value = "jax.nn.silu(wide)";
      break;
    case GELU:
      name = "gelu", value = "jax.nn.gelu(wide, approximate=False)";
      break;
    case GELU_TANH:
      name = "gelu_tanh", value = "jax.nn.gelu(wide, approximate=True)";
      break;
    case RELU:
      name = "relu", value = "jax.nn.relu(wide)";
      break;
    case TANH:
      name = "tanh", value = "jnp.tanh(wide)";
      break;
    case QUICK_GELU:
      name = "quick_gelu", value = "wide * jax.nn.sigmoid(1.702 * wide)";
      break;
    case RELU2:
      name = "squared_relu", value = "jnp.square(jax.nn.relu(wide))";
      break;
    default:  // SIGMOID; a verified graph has no other
      break;
  }
  const std::string widen = Widen();
  return functions_.Define(
      name, absl::StrCat("def $(x):\n    wide = ", widen, "(x)\n    return (", value, ").astype(x.dtype)\n"));
}

std::string JaxEmitter::Gate(const MlpAttrs& attrs) {
  if (!attrs.has_clamp_limit()) {
    const std::string act = Activate(attrs.act());
    return functions_.Define("gated", absl::StrCat("def $(gate, up):\n    return ", act, "(gate) * up\n"));
  }
  const std::string limit =
      config_.Float("clamp_limit", attrs.clamp_limit(), "of gate from above, of up both ways");
  const std::string alpha = config_.Float("clamp_alpha", attrs.clamp_alpha());
  const std::string offset = config_.Float("up_offset", attrs.up_offset());
  return functions_.Define(
      "gated", absl::StrCat("def $(gate, up):\n    gate = jnp.minimum(gate, ", limit,
                            ")\n    up = jnp.clip(up, -", limit, ", ", limit, ")\n    return (up + ", offset,
                            ") * gate * jax.nn.sigmoid(", alpha, " * gate)\n"));
}

std::string JaxEmitter::GatedMlp(const Node& node) {
  const std::string gated = Gate(node.attrs->mlp());
  return functions_.Define(
      "gated_mlp", InOrder({"def $(x, p):\n    gate = ", Project(node, "x", "gate", "gate_bias"),
                            "\n    up = ", Project(node, "x", "up", "up_bias"), "\n    return ",
                            Project(node, absl::StrCat(gated, "(gate, up)"), "down", "down_bias"), "\n"}));
}

std::string JaxEmitter::Mlp(const Node& node) {
  const std::string act = Activate(node.attrs->mlp().act());
  return functions_.Define(
      "mlp", InOrder({"def $(x, p):\n    up = ", Project(node, "x", "up", "up_bias"), "\n    return ",
                      Project(node, absl::StrCat(act, "(up)"), "down", "down_bias"), "\n"}));
}

std::string JaxEmitter::Embedding(const Node& node) {
  const EmbeddingAttrs& attrs = node.attrs->embedding();
  const std::string rows = Slot(node, "table") + "[tokens]";
  if (!attrs.has_scale() && node.params.size() == 1)
    return functions_.Define("embed", absl::StrCat("def $(p, tokens, positions):\n    return ", rows, "\n"));
  std::string text = absl::StrCat("def $(p, tokens, positions):\n    x = ", rows, "\n");
  if (attrs.has_scale()) {
    absl::StrAppend(&text, "    x = x * jnp.asarray(",
                    config_.Float("embed_scale", attrs.scale(), "rows of the table are multiplied by it"),
                    ", x.dtype)\n");
  }
  if (node.Has("type_table")) {
    absl::StrAppend(&text, "    x = x + p[\"type_table\"][0].astype(x.dtype)  # every token is of type 0\n");
  }
  if (node.Has("position_table")) {
    std::string row = "positions";
    if (attrs.position_offset() != 0)
      absl::StrAppend(&row, " + ",
                      config_.Int("position_offset", attrs.position_offset(), "row of position 0"));
    absl::StrAppend(&text, "    x = x + p[\"position_table\"][", row, "].astype(x.dtype)\n");
  }
  return functions_.Define("embed", text + "    return x\n");
}

std::string JaxEmitter::LmHead(const Node& node) {
  const LmHeadAttrs& attrs = node.attrs->lm_head();
  const ParamAxis& vocab = TypeOf(node, "head").axes.back();
  const std::string product = Project(node, "x", "head", "bias");
  const std::string words = config_.Int("vocab", vocab.logical, "words; places beyond them are padding");
  std::string text = "def $(x, p):\n";
  std::string value = product;
  if (vocab.padded()) value = absl::StrCat(value, "[..., :", words, "]");
  if (attrs.has_scale()) value = absl::StrCat(value, " * ", config_.Float("logit_scale", attrs.scale()));
  if (attrs.softcap() != 0) {
    absl::StrAppend(&text, "    y = ", value, "\n");
    value = SoftCap("y", attrs.softcap(), "logit_softcap");
  }
  absl::StrAppend(&text, "    return ", value,
                  vocab.padded() && attrs.softcap() == 0 ? "  # a padded place has no logit" : "", "\n");
  return functions_.Define("lm_head", text);
}

}  // namespace twinforge
