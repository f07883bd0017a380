// Attention over grouped heads and over latents, its mask and its cache.
#include "absl/strings/str_cat.h"
#include "reference/einsum.h"
#include "reference/python.h"
#include "reference/torch_emitter.h"

namespace twinforge {

std::string TorchEmitter::Visible() {
  std::string text =
      absl::StrCat("def $(at, keys", windows_ ? ", window=None" : "", chunks_ ? ", chunk=None" : "",
                   "):\n    \"\"\"[batch, 1, 1, seq, keys]: whether a token sees a place of its "
                   "sequence.\"\"\"\n    place = torch.arange(keys, device=at.positions.device)\n");
  if (program_.decodes) {
    text += "    age = at.positions[:, :, None] - place\n    seen = age >= 0\n";
  } else {
    text += "    seen = (place < at.lengths[:, None, None]).expand(*at.positions.shape, keys)\n";
    if (windows_) text += "    age = at.positions[:, :, None] - place\n";
  }
  if (windows_) text += "    if window is not None:\n        seen = seen & (age < window)\n";
  if (chunks_) {
    text +=
        "    if chunk is not None:\n"
        "        seen = seen & (at.positions[:, :, None] // chunk == place // chunk)\n";
  }
  return functions_.Define("visible", text + "    return seen[:, None, None]\n");
}

std::string TorchEmitter::Remember() {
  return functions_.Define("remember", R"(def $(cache, layer, positions, **fresh):
    """Writes `fresh` [batch, seq, ..] at its tokens' positions, and gives all that the layer now remembers.

    Without a cache that is the whole sequence, which is what is fresh.
    """
    if cache is None:
        return tuple(fresh.values())
    rows = torch.arange(positions.shape[0], device=positions.device)[:, None]
    for name, value in fresh.items():
        cache[name][layer, rows, positions] = value
    return tuple(cache[name][layer] for name in fresh)
)");
}

std::string TorchEmitter::Arguments() const {
  return absl::StrCat(program_.decodes ? "x, cache, i, at" : "x, at", windows_ ? ", window=None" : "",
                      chunks_ ? ", chunk=None" : "");
}

// From scores [batch, kv_heads, group, seq, keys] in float32 to weights in x's dtype.
std::string TorchEmitter::Weights(const Node& node, const AttentionAttrs& attrs) {
  std::string text;
  if (attrs.softcap() != 0)
    absl::StrAppend(&text, "scores = ", SoftCap("scores", attrs.softcap(), "score_softcap"), "\n");
  if (attrs.alibi_size() != 0) {
    const std::vector<double> slopes(attrs.alibi().begin(), attrs.alibi().end());
    absl::StrAppend(
        &text, "slopes = scores.new_tensor(", config_.Floats("alibi_slopes", slopes, "one a head"),
        ").reshape(1, k.shape[2], -1, 1, 1)\n", "place = torch.arange(k.shape[1], device=k.device)\n",
        "scores = scores + slopes * (place - at.positions[:, None, None, :, None])\n");
  }
  absl::StrAppend(&text, "seen = ", Visible(), "(at, scores.shape[-1]", windows_ ? ", window" : "",
                  chunks_ ? ", chunk=chunk" : "", ")\nscores = scores.masked_fill(~seen, float(\"-inf\"))\n");
  if (!node.Has("sinks")) return text + "weights = torch.softmax(scores, dim=-1).to(x.dtype)\n";
  absl::StrAppend(&text, "sinks = ", Widen(), "(self.sinks).reshape(1, k.shape[2], -1, 1, 1)\n",
                  "sinks = sinks.expand(*scores.shape[:-1], 1)  # a logit more, whose share is lost\n",
                  "weights = torch.softmax(torch.cat([scores, sinks.to(scores.dtype)], dim=-1), dim=-1)\n"
                  "weights = weights[..., :-1].to(x.dtype)\n");
  return text;
}

std::string TorchEmitter::Attention(const Node& node) {
  const AttentionAttrs& attrs = node.attrs->attention();
  std::string text;
  for (const char* name : {"q", "k", "v"})
    absl::StrAppend(&text, name, " = ", Project(node, "x", name, absl::StrCat(name, "_bias")), "\n");
  if (node.Has("q_norm")) {
    for (const char* name : {"q", "k"}) {
      const std::string slot = absl::StrCat(name, "_norm");
      const Rms norm{slot, "qk_norm_eps", attrs.qk_norm_eps(), attrs.qk_norm_offset(), attrs.qk_norm_dim()};
      absl::StrAppend(&text, name, " = ", RmsCall(node, norm, name), "\n");
    }
  }
  if (attrs.rope().style() != Rope::ABSENT) {
    const std::string rotate = Rotate(attrs.rope()), angles = Angles(attrs.rope());
    absl::StrAppend(&text, "q, k = ", rotate, "(q, ", angles, "), ", rotate, "(k, ", angles, ")\n");
  }
  if (program_.decodes) absl::StrAppend(&text, "k, v = ", Remember(), "(cache, i, at.positions, k=k, v=v)\n");
  text += InOrder({"groups = q.unflatten(2, (k.shape[2], -1))  # heads that share a key\n",
                   "scores = ", WideDot(), "(\"bsngh,btnh->bngst\", groups, k) * ",
                   config_.Float("score_scale", attrs.scale(), "softmax(scale * q k)"), "\n"});
  text += Weights(node, attrs);
  absl::StrAppend(&text, "mixed = ", Dot(), "(\"bngst,btnh->bsngh\", weights, v).flatten(2, 3)\n");
  absl::StrAppend(&text, "return ", Project(node, "mixed", "o", "o_bias"), "\n");
  return Block("Attention", Arguments(), text);
}

std::string TorchEmitter::LatentAttention(const Node& node) {
  const LatentAttentionAttrs& attrs = node.attrs->latent_attention();
  std::string text;
  const auto latent = [&](absl::string_view name, absl::string_view slot) {
    const std::string norm_slot = absl::StrCat(slot, "_norm");
    const Rms norm{norm_slot, "latent_norm_eps", attrs.norm_eps()};
    const std::string x = Project(node, "x", slot, absl::StrCat(slot, "_bias"));
    absl::StrAppend(&text, name, " = ", RmsCall(node, norm, x), "\n");
  };
  if (node.Has("q_a")) latent("query", "q_a");
  const std::string query = node.Has("q_a") ? "query" : "x";
  text += InOrder(
      {"q_nope = ", Project(node, query, "q_nope"), "\nq_rope = ", Project(node, query, "q_rope"), "\n"});
  latent("latent", "kv_a");
  absl::StrAppend(&text, "rope_key = ", Project(node, "x", "k_rope", "k_rope_bias"),
                  "  # one for all heads\n");
  if (attrs.rope().style() != Rope::ABSENT) {
    const std::string rotate = Rotate(attrs.rope()), angles = Angles(attrs.rope());
    absl::StrAppend(&text, "q_rope = ", rotate, "(q_rope, ", angles, ")\nrope_key = ", rotate,
                    "(rope_key[:, :, None], ", angles, ")[:, :, 0]\n");
  }
  absl::StrAppend(&text, "latent, rope_key = ", Remember(),
                  "(cache, i, at.positions, latent=latent, rope_key=rope_key)\n");
  const AxisLetters k_b = LettersOf(program_.Held(node, "k_b")), v_b = LettersOf(program_.Held(node, "v_b"));
  if (attrs.absorbed()) {
    text += InOrder({"q_latent = ", Dot(), "(\"bs", k_b.out, ",", k_b.held, "->bs", k_b.out.substr(0, 1),
                     k_b.in, "\", q_nope, self.k_b)  # k_b acts on the query, so that keys stay latents\n",
                     "scores = ", WideDot(), "(\"bsnr,btr->bnst\", q_latent, latent)\n"});
  } else {
    text += InOrder({"k_nope = ", Project(node, "latent", "k_b", "", "bt"),
                     "\nv = ", Project(node, "latent", "v_b", "", "bt"), "\nscores = ", WideDot(),
                     "(\"bsnh,btnh->bnst\", q_nope, k_nope)\n"});
  }
  text += InOrder(
      {"scores = scores + ", WideDot(), "(\"bsnh,bth->bnst\", q_rope, rope_key)\nseen = ", Visible(),
       "(at, scores.shape[-1])[:, :, 0]\nscores = (scores * ",
       config_.Float("score_scale", attrs.scale(), "softmax(scale * q k)"),
       ").masked_fill(~seen, float(\"-inf\"))\n", "weights = torch.softmax(scores, dim=-1).to(x.dtype)\n"});
  if (attrs.absorbed()) {
    text += InOrder({"mixed = ", Dot(), "(\"bnst,btr->bsnr\", weights, latent)\nmixed = ", Dot(), "(\"bsn",
                     v_b.in, ",", v_b.held, "->bs", v_b.out, "\", mixed, self.v_b)\n"});
  } else {
    absl::StrAppend(&text, "mixed = ", Dot(), "(\"bnst,btnh->bsnh\", weights, v)\n");
  }
  absl::StrAppend(&text, "return ", Project(node, "mixed", "o", "o_bias"), "\n");
  return Block("LatentAttention", "x, cache, i, at", text);
}

}  // namespace twinforge
