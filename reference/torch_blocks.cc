// Norms, feed-forward blocks, embedding and head.
#include "absl/strings/str_cat.h"
#include "reference/einsum.h"
#include "reference/python.h"
#include "reference/torch_emitter.h"

namespace twinforge {

std::string TorchEmitter::RmsCall(const Node& node, const Rms& norm, absl::string_view x) {
  const ParamAxis& axis = TypeOf(node, norm.slot).axes[0];
  const int64_t width = norm.width != 0 ? norm.width : axis.logical;
  const std::string widen = Widen();
  std::string mean = "wide.square().mean(dim=-1, keepdim=True)";
  if (width != axis.size) {
    mean = absl::StrCat(
        "wide.square().sum(dim=-1, keepdim=True) / ",
        config_.Int(absl::StrCat(axis.name, "_norm"), width, "places that a norm counts; the rest are 0"));
  }
  std::string value = "(wide * torch.rsqrt(mean + eps)).to(x.dtype) * scale.to(x.dtype)";
  if (norm.offset != 0) {
    value = absl::StrCat("(wide * torch.rsqrt(mean + eps) * (",
                         config_.Float("norm_offset", norm.offset, "norms multiply by offset + scale"), " + ",
                         widen, "(scale))).to(x.dtype)");
  }
  const std::string name = functions_.Define(
      "rms_norm", absl::StrCat("def $(x, scale, eps):\n",
                               "    \"\"\"x / sqrt(mean of its squares + eps) along the last axis, in "
                               "float32; times scale.\"\"\"\n",
                               "    wide = ", widen, "(x)\n    mean = ", mean, "\n    return ", value, "\n"));
  return absl::StrCat(name, "(", x, ", self.", norm.slot, ", ", config_.Float(norm.eps_name, norm.eps), ")");
}

std::string TorchEmitter::RmsNorm(const Node& node) {
  const NormAttrs& attrs = node.attrs->norm();
  const Rms norm{"scale", "norm_eps", attrs.eps(), attrs.offset(), attrs.norm_dim()};
  return Block("RmsNorm", "x", absl::StrCat("return ", RmsCall(node, norm, "x"), "\n"));
}

std::string TorchEmitter::LayerNorm(const Node& node) {
  const NormAttrs& attrs = node.attrs->norm();
  const ParamAxis& axis = TypeOf(node, "scale").axes[0];
  const int64_t width = attrs.norm_dim() != 0 ? attrs.norm_dim() : axis.logical;
  const std::string widen = Widen();
  std::string centre = "centred = wide - wide.mean(dim=-1, keepdim=True)\n";
  std::string variance = "centred.square().mean(dim=-1, keepdim=True)";
  if (width != axis.size) {
    const std::string count =
        config_.Int(absl::StrCat(axis.name, "_norm"), width, "places that a norm counts; the rest are 0");
    centre = absl::StrCat("counted = torch.arange(x.shape[-1], device=x.device) < ", count, "\n",
                          "mean = (wide * counted).sum(dim=-1, keepdim=True) / ", count, "\n",
                          "centred = (wide - mean) * counted\n");
    variance = absl::StrCat("centred.square().sum(dim=-1, keepdim=True) / ", count);
  }
  std::string scale = absl::StrCat(widen, "(self.scale)");
  if (attrs.offset() != 0)
    scale =
        absl::StrCat("(", config_.Float("norm_offset", attrs.offset(), "norms multiply by offset + scale"),
                     " + ", scale, ")");
  const bool bias = node.Has("bias");
  const std::string eps = config_.Float("norm_eps", attrs.eps());
  return Block(
      "LayerNorm", "x",
      absl::StrCat("wide = ", widen, "(x)\n", centre, "variance = ", variance,
                   "\ny = centred * torch.rsqrt(variance + ", eps, ") * ", scale,
                   bias ? absl::StrCat(" + ", widen, "(self.bias)") : "", "\nreturn y.to(x.dtype)\n"),
      absl::StrCat("(x - mean) / sqrt(variance + eps) * scale", bias ? " + bias" : "", ", in float32."));
}

std::string TorchEmitter::Activate(Activation act) {
  absl::string_view name = "sigmoid", value = "torch.sigmoid(wide)";
  switch (act) {
    case SILU:
      name = "silu", value = "F.silu(wide)";
      break;
    case GELU:
      name = "gelu", value = "F.gelu(wide)";
      break;
    case GELU_TANH:
      name = "gelu_tanh", value = "F.gelu(wide, approximate=\"tanh\")";
      break;
    case RELU:
      name = "relu", value = "torch.relu(wide)";
      break;
    case TANH:
      name = "tanh", value = "torch.tanh(wide)";
      break;
    case QUICK_GELU:
      name = "quick_gelu", value = "(wide * torch.sigmoid(1.702 * wide))";
      break;
    case RELU2:
      name = "squared_relu", value = "torch.relu(wide).square()";
      break;
    default:  // SIGMOID; a verified graph has no other
      break;
  }
  const std::string widen = Widen();
  return functions_.Define(
      name, absl::StrCat("def $(x):\n    wide = ", widen, "(x)\n    return ", value, ".to(x.dtype)\n"));
}

std::string TorchEmitter::Gate(const MlpAttrs& attrs) {
  if (!attrs.has_clamp_limit()) {
    const std::string act = Activate(attrs.act());
    return functions_.Define("gated", absl::StrCat("def $(gate, up):\n    return ", act, "(gate) * up\n"));
  }
  const std::string limit =
      config_.Float("clamp_limit", attrs.clamp_limit(), "of gate from above, of up both ways");
  const std::string alpha = config_.Float("clamp_alpha", attrs.clamp_alpha());
  const std::string offset = config_.Float("up_offset", attrs.up_offset());
  return functions_.Define(
      "gated", absl::StrCat("def $(gate, up):\n    gate = gate.clamp(max=", limit, ")\n    up = up.clamp(-",
                            limit, ", ", limit, ")\n    return (up + ", offset, ") * gate * torch.sigmoid(",
                            alpha, " * gate)\n"));
}

std::string TorchEmitter::Linear(const Node& node) {
  return Block("Linear", "x", absl::StrCat("return ", Project(node, "x", "kernel", "bias"), "\n"));
}

std::string TorchEmitter::GatedMlp(const Node& node) {
  const std::string gated = Gate(node.attrs->mlp());
  return Block("GatedMlp", "x",
               InOrder({"gate = ", Project(node, "x", "gate", "gate_bias"),
                        "\nup = ", Project(node, "x", "up", "up_bias"), "\nreturn ",
                        Project(node, absl::StrCat(gated, "(gate, up)"), "down", "down_bias"), "\n"}));
}

std::string TorchEmitter::Mlp(const Node& node) {
  const std::string act = Activate(node.attrs->mlp().act());
  return Block("Mlp", "x",
               InOrder({"up = ", Project(node, "x", "up", "up_bias"), "\nreturn ",
                        Project(node, absl::StrCat(act, "(up)"), "down", "down_bias"), "\n"}));
}

std::string TorchEmitter::Embedding(const Node& node) {
  const EmbeddingAttrs& attrs = node.attrs->embedding();
  const std::string rows = "F.embedding(tokens, self.table)";
  if (!attrs.has_scale() && node.params.size() == 1)
    return Block("Embedding", "tokens, positions", absl::StrCat("return ", rows, "\n"));
  std::string text = absl::StrCat("x = ", rows, "\n");
  if (attrs.has_scale()) {
    absl::StrAppend(&text, "x = x * x.new_full((), ",
                    config_.Float("embed_scale", attrs.scale(), "rows of the table are multiplied by it"),
                    ")\n");
  }
  if (node.Has("type_table")) text += "x = x + self.type_table[0].to(x.dtype)  # every token is of type 0\n";
  if (node.Has("position_table")) {
    std::string row = "positions";
    if (attrs.position_offset() != 0)
      absl::StrAppend(&row, " + ",
                      config_.Int("position_offset", attrs.position_offset(), "row of position 0"));
    absl::StrAppend(&text, "x = x + F.embedding(", row, ", self.position_table).to(x.dtype)\n");
  }
  return Block("Embedding", "tokens, positions", text + "return x\n");
}

std::string TorchEmitter::LmHead(const Node& node) {
  const LmHeadAttrs& attrs = node.attrs->lm_head();
  const ParamAxis& vocab = TypeOf(node, "head").axes.back();
  std::string value = Project(node, "x", "head", "bias");
  const std::string words = config_.Int("vocab", vocab.logical, "words; places beyond them are padding");
  std::string text;
  if (vocab.padded()) value = absl::StrCat(value, "[..., :", words, "]");
  if (attrs.has_scale()) value = absl::StrCat(value, " * ", config_.Float("logit_scale", attrs.scale()));
  if (attrs.softcap() != 0) {
    absl::StrAppend(&text, "y = ", value, "\n");
    value = SoftCap("y", attrs.softcap(), "logit_softcap");
  }
  absl::StrAppend(&text, "return ", value, "\n");
  return Block("LmHead", "x", text, vocab.padded() ? "Logits of words; a padded place has none." : "");
}

}  // namespace twinforge
