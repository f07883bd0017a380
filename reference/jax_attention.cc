// Attention over grouped heads and over latents, its mask, its cache and its rotary turning.
#include "absl/strings/str_cat.h"
#include "ir/rope.h"
#include "reference/einsum.h"
#include "reference/jax_emitter.h"
#include "reference/python.h"

namespace twinforge {

std::string JaxEmitter::Visible() {
  std::string text =
      absl::StrCat("def $(at, keys", windows_ ? ", window=None" : "", chunks_ ? ", chunk=None" : "",
                   "):\n    \"\"\"[batch, 1, 1, seq, keys]: whether a token sees a place of its "
                   "sequence.\"\"\"\n    place = jnp.arange(keys)\n");
  if (program_.decodes) {
    text += "    age = at.positions[:, :, None] - place\n    seen = age >= 0\n";
  } else {
    text += "    seen = jnp.broadcast_to(place < at.lengths[:, None, None], (*at.positions.shape, keys))\n";
    if (windows_) text += "    age = at.positions[:, :, None] - place\n";
  }
  if (windows_) text += "    if window is not None:\n        seen &= age < window\n";
  if (chunks_) {
    text +=
        "    if chunk is not None:\n        seen &= at.positions[:, :, None] // chunk == place // chunk\n";
  }
  return functions_.Define("visible", text + "    return seen[:, None, None]\n");
}

std::string JaxEmitter::Remember() {
  return functions_.Define("remember", R"(def $(cache, layer, positions, **fresh):
    """The cache [layers, batch, heads, keys, ..] with `fresh` [batch, seq, heads, ..] from each sequence's position on.

    Sequence by sequence: a scatter would have XLA lay the whole cache anew, another way round.
    """
    cache = dict(cache)
    for name, value in fresh.items():
        value = value.swapaxes(1, 2).astype(cache[name].dtype)
        for row, own in enumerate(value):
            place = (layer, row, 0, positions[row, 0], 0)
            cache[name] = jax.lax.dynamic_update_slice(cache[name], own[None, None], place)
    return cache
)");
}

std::string JaxEmitter::AttendByKernel(absl::string_view cache, std::string more) {
  UseKernel("decode_attention");
  const std::string options = KernelOptions();
  return absl::StrCat("    options = ", options, "()\n    if options is not None and q.shape[1] == 1:\n",
                      "        mixed = decode_attention.kernel(\n            q[:, 0], ", cache,
                      ", at.positions[:, 0] + 1, layer=layer,\n            ", more,
                      ", **options)\n        return mixed[:, None]\n");
}

// The parameters of a block that the call fills, after x and p.
std::string JaxEmitter::Signature() const {
  return absl::StrCat(program_.decodes ? "cache, layer, at" : "at", windows_ ? ", window=None" : "",
                      chunks_ ? ", chunk=None" : "");
}

// From scores [batch, kv_heads, group, seq, keys] in float32 to weights in x's dtype.
std::string JaxEmitter::Weights(const Node& node, const AttentionAttrs& attrs) {
  std::string text;
  if (attrs.softcap() != 0) {
    absl::StrAppend(&text, "    scores = ", SoftCap("scores", attrs.softcap(), "score_softcap"), "\n");
  }
  if (attrs.alibi_size() != 0) {
    const std::vector<double> slopes(attrs.alibi().begin(), attrs.alibi().end());
    absl::StrAppend(&text, "    slopes = jnp.asarray(", config_.Floats("alibi_slopes", slopes, "one a head"),
                    ", scores.dtype).reshape(1, scores.shape[1], -1, 1, 1)\n",
                    "    scores = scores + slopes * (jnp.arange(scores.shape[-1]) - at.positions[:, None, "
                    "None, :, None])\n");
  }
  absl::StrAppend(&text, "    scores = jnp.where(", Visible(), "(at, scores.shape[-1]",
                  windows_ ? ", window" : "", chunks_ ? ", chunk=chunk" : "", "), scores, -jnp.inf)\n");
  if (!node.Has("sinks")) return text + "    weights = jax.nn.softmax(scores, axis=-1).astype(q.dtype)\n";
  absl::StrAppend(
      &text, "    sinks = ", Widen(), "(sinks).reshape(1, scores.shape[1], -1, 1, 1)\n",
      "    sinks = jnp.broadcast_to(sinks, (*scores.shape[:-1], 1))  # a logit more, whose share is lost\n",
      "    weights = jax.nn.softmax(jnp.concatenate([scores, sinks], axis=-1), axis=-1)[..., :-1]"
      ".astype(q.dtype)\n");
  return text;
}

// Of queries [batch, seq, heads, head_dim]; keys and values come from the cache, or are given where there is
// none.
std::string JaxEmitter::Attend(const Node& node) {
  const AttentionAttrs& attrs = node.attrs->attention();
  const bool sinks = node.Has("sinks"), cached = program_.decodes;
  std::string text =
      absl::StrCat("def $(q, ", cached ? "cache, layer, at" : "k, v, at", sinks ? ", sinks" : "",
                   windows_ ? ", window=None" : "", chunks_ ? ", chunk=None" : "", "):\n");
  text +=
      "    \"\"\"[batch, seq, heads, head_dim]: values that each query sees, by the softmax of its "
      "scores.\"\"\"\n";
  const std::string scale = config_.Float("score_scale", attrs.scale(), "softmax(scale * q k)");
  if (cached && attrs.alibi_size() == 0 && !chunks_) {
    std::string more = absl::StrCat("scale=", scale);
    if (windows_) more += ", window=window or 0";
    if (attrs.softcap() != 0)
      absl::StrAppend(&more,
                      ", softcap=", config_.Float("score_softcap", attrs.softcap(), "cap * tanh(x / cap)"));
    if (sinks) more += ", sinks=sinks";
    text += AttendByKernel("cache[\"k\"], cache[\"v\"]", more);
  }
  if (cached) {
    text += "    k, v = cache[\"k\"][layer], cache[\"v\"][layer]  # [batch, kv_heads, keys, head_dim]\n";
  } else {
    text += "    k, v = k.swapaxes(1, 2), v.swapaxes(1, 2)  # [batch, kv_heads, keys, head_dim]\n";
  }
  text +=
      InOrder({"    groups = q.reshape(*q.shape[:2], k.shape[1], -1, q.shape[3])  # heads that share a key\n",
               "    scores = ", WideDot(), "(\"bsngh,bnth->bngst\", groups, k) * ", scale, "\n"});
  text += Weights(node, attrs);
  absl::StrAppend(&text, "    mixed = ", Dot(), "(\"bnth,bngst->bsngh\", v.astype(q.dtype), weights)\n",
                  "    return mixed.reshape(*q.shape[:3], v.shape[3])\n");
  return functions_.Define("attend", text);
}

std::string JaxEmitter::Attention(const Node& node) {
  const AttentionAttrs& attrs = node.attrs->attention();
  std::string text = absl::StrCat("def $(x, p, ", Signature(), "):\n");
  for (const char* name : {"q", "k", "v"}) {
    absl::StrAppend(&text, "    ", name, " = ", Project(node, "x", name, absl::StrCat(name, "_bias")), "\n");
  }
  if (node.Has("q_norm")) {
    for (const char* name : {"q", "k"}) {
      const std::string slot = absl::StrCat(name, "_norm");
      const Rms norm{slot, "qk_norm_eps", attrs.qk_norm_eps(), attrs.qk_norm_offset(), attrs.qk_norm_dim()};
      absl::StrAppend(&text, "    ", name, " = ", RmsNorm(node, norm, name, Slot(node, slot)), "\n");
    }
  }
  if (attrs.rope().style() != Rope::ABSENT) {
    const std::string rotate = Rotate(attrs.rope()), angles = Angles(attrs.rope());
    absl::StrAppend(&text, "    q, k = ", rotate, "(q, ", angles, "), ", rotate, "(k, ", angles, ")\n");
  }
  if (program_.decodes)
    absl::StrAppend(&text, "    cache = ", Remember(), "(cache, layer, at.positions, k=k, v=v)\n");
  absl::StrAppend(&text, "    mixed = ", Attend(node),
                  program_.decodes ? "(q, cache, layer, at" : "(q, k, v, at",
                  node.Has("sinks") ? ", p[\"sinks\"]" : "", windows_ ? ", window=window" : "",
                  chunks_ ? ", chunk=chunk" : "", ")\n");
  const std::string out = Project(node, "mixed", "o", "o_bias");
  return functions_.Define("attention",
                           absl::StrCat(text, "    return ", out, program_.decodes ? ", cache\n" : "\n"));
}

// From scores [batch, heads, seq, keys] to weights in the dtype of `like`.
std::string JaxEmitter::LatentWeights(const LatentAttentionAttrs& attrs, absl::string_view like) {
  return InOrder({"    scores = jnp.where(", Visible(), "(at, scores.shape[-1])[:, :, 0], scores * ",
                  config_.Float("score_scale", attrs.scale(), "softmax(scale * q k)"), ", -jnp.inf)\n",
                  "    weights = jax.nn.softmax(scores, axis=-1).astype(", like, ".dtype)\n"});
}

// Of queries [batch, seq, heads, kv_lora + rope_dim] among latents with their rope keys.
std::string JaxEmitter::AttendLatents(const Node& node) {
  const LatentAttentionAttrs& attrs = node.attrs->latent_attention();
  const std::string scale = config_.Float("score_scale", attrs.scale(), "softmax(scale * q k)");
  const std::string width = config_.Int("kv_lora", TypeOf(node, "kv_a").Get("kv_lora").size);
  const std::string more = absl::StrCat("scale=", scale, ", value_lanes=(0, ", width, ")");
  return functions_.Define(
      "attend_latents",
      InOrder(
          {"def $(q, cache, layer, at):\n    \"\"\"[batch, seq, heads, kv_lora]: latents that each query "
           "sees, "
           "by the softmax of its scores.\"\"\"\n",
           AttendByKernel("cache[\"latent\"], None", more),
           "    memory = cache[\"latent\"][layer, :, 0]  # [batch, keys, kv_lora + rope_dim]\n    scores = ",
           WideDot(), "(\"bsnr,btr->bnst\", q, memory)\n", LatentWeights(attrs, "q"), "    return ", Dot(),
           "(\"btr,bnst->bsnr\", memory[..., :", width, "].astype(q.dtype), weights)\n"}));
}

std::string JaxEmitter::LatentAttention(const Node& node) {
  const LatentAttentionAttrs& attrs = node.attrs->latent_attention();
  const bool turns = attrs.rope().style() != Rope::ABSENT;
  std::string text = absl::StrCat("def $(x, p, ", Signature(), "):\n");
  if (node.Has("q_a")) {
    const Rms norm{"q_a_norm", "latent_norm_eps", attrs.norm_eps()};
    text += InOrder(
        {"    query = ", RmsNorm(node, norm, Project(node, "x", "q_a", "q_a_bias"), Slot(node, "q_a_norm")),
         "\n"});
  }
  const std::string query = node.Has("q_a") ? "query" : "x";
  text += InOrder({"    q_nope = ", Project(node, query, "q_nope"),
                   "\n    q_rope = ", Project(node, query, "q_rope"), "\n"});
  const Rms norm{"kv_a_norm", "latent_norm_eps", attrs.norm_eps()};
  text += InOrder(
      {"    latent = ", RmsNorm(node, norm, Project(node, "x", "kv_a", "kv_a_bias"), Slot(node, "kv_a_norm")),
       "\n", "    rope_key = ", Project(node, "x", "k_rope", "k_rope_bias"), "  # one for all heads\n"});
  if (turns) {
    const std::string rotate = Rotate(attrs.rope()), angles = Angles(attrs.rope());
    absl::StrAppend(&text, "    q_rope = ", rotate, "(q_rope, ", angles, ")\n    rope_key = ", rotate,
                    "(rope_key[:, :, None], ", angles, ")[:, :, 0]\n");
  }
  absl::StrAppend(&text,
                  "    memory = jnp.concatenate([latent, rope_key], axis=-1)[:, :, None]  # of one head\n",
                  "    cache = ", Remember(), "(cache, layer, at.positions, latent=memory)\n");
  const AxisLetters k_b = LettersOf(program_.Held(node, "k_b")), v_b = LettersOf(program_.Held(node, "v_b"));
  if (attrs.absorbed()) {
    text += InOrder({"    q_latent = ",
                     Dot(),
                     "(\"",
                     k_b.held,
                     ",bs",
                     k_b.out,
                     "->bs",
                     k_b.out.substr(0, 1),
                     k_b.in,
                     "\", p[\"k_b\"].astype(x.dtype), q_nope)  # k_b acts on the query: keys stay latents\n",
                     "    mixed = ",
                     AttendLatents(node),
                     "(jnp.concatenate([q_latent, q_rope], axis=-1), cache, layer, at)\n",
                     "    mixed = ",
                     Dot(),
                     "(\"bsn",
                     v_b.in,
                     ",",
                     v_b.held,
                     "->bs",
                     v_b.out,
                     "\", mixed, p[\"v_b\"])\n"});
  } else {
    const std::string width = config_.Int("kv_lora", TypeOf(node, "kv_a").Get("kv_lora").size);
    text += InOrder({"    latent, rope_key = jnp.split(cache[\"latent\"][layer, :, 0], [", width,
                     "], axis=-1)\n", "    k_nope = ", Project(node, "latent", "k_b", "", "bt"),
                     "\n    v = ", Project(node, "latent", "v_b", "", "bt"), "\n    scores = ", WideDot(),
                     "(\"bsnh,btnh->bnst\", q_nope, k_nope)\n", "    scores = scores + ", WideDot(),
                     "(\"bsnh,bth->bnst\", q_rope, rope_key)\n", LatentWeights(attrs, "x"),
                     "    mixed = ", Dot(), "(\"btnh,bnst->bsnh\", v, weights)\n"});
  }
  const std::string out = Project(node, "mixed", "o", "o_bias");
  return functions_.Define("latent_attention", absl::StrCat(text, "    return ", out, ", cache\n"));
}

// ---- rotary turning

namespace {

// Lines that make `frequencies`, radians a position, of the pairs; `theta ** -exponents` but for scaling.
std::string FrequencyLines(const Rope& rope, ConfigFields& config) {
  const RopeScaling& scaling = rope.scaling();
  const std::string dim = config.Int("rotary_dim", rope.rotary_dim(), "places of a head that turn");
  const std::string theta = config.Float("rope_theta", rope.theta());
  std::string text = absl::StrCat("    exponents = np.arange(0, ", dim, ", 2) / ", dim, "\n");
  const std::string usual = absl::StrCat("    frequencies = ", theta, "**-exponents\n");
  const auto factor = [&] { return config.Float("rope_factor", scaling.factor()); };
  const auto trained = [&] {
    return config.Int("rope_trained_length", scaling.original_max_position_embeddings());
  };
  switch (scaling.kind()) {
    case RopeScaling::LINEAR:
      return absl::StrCat(text, "    frequencies = ", theta, "**-exponents / ", factor(), "\n");
    case RopeScaling::LLAMA3: {
      const std::string low = config.Float("rope_low_turns", scaling.low_freq_factor());
      const std::string high = config.Float("rope_high_turns", scaling.high_freq_factor());
      return InOrder({text, usual, "    turns = ", trained(),
                      " * frequencies / (2 * np.pi)\n    low, high = ", low, ", ", high,
                      "\n    keep = np.clip((turns - low) / (high - low), 0, 1)",
                      "  # slow pairs are stretched, fast ones stay\n",
                      "    frequencies = keep * frequencies + (1 - keep) * frequencies / ", factor(), "\n"});
    }
    case RopeScaling::YARN: {
      const bool whole = !scaling.has_truncate() || scaling.truncate();
      const std::string fast = config.Float("rope_beta_fast", scaling.beta_fast());
      const std::string slow = config.Float("rope_beta_slow", scaling.beta_slow());
      return InOrder(
          {text,
           usual,
           "    turns = np.array([",
           fast,
           ", ",
           slow,
           "])  # pairs that turn so often are blended\n",
           "    pairs = np.log(",
           trained(),
           " / (turns * 2 * np.pi)) / np.log(",
           theta,
           ")\n    low, high = pairs * ",
           dim,
           " / 2\n",
           whole ? "    low, high = np.floor(low), np.ceil(high)\n" : "",
           "    low, high = max(low, 0), min(high, ",
           dim,
           " - 1)\n    high = high + 0.001 if low == high else high\n    stretch = np.clip((np.arange(",
           dim,
           " // 2) - low) / (high - low), 0, 1)\n    frequencies = frequencies * (1 - stretch) + frequencies "
           "/ ",
           factor(),
           " * stretch\n"});
    }
    case RopeScaling::LONGROPE: {
      const std::vector<double> near(scaling.short_factor().begin(), scaling.short_factor().end());
      const std::vector<double> far(scaling.long_factor().begin(), scaling.long_factor().end());
      return InOrder({text, usual, "    beyond = jnp.max(positions) + 1 > ", trained(),
                      "\n    frequencies = jnp.where(beyond, frequencies / np.array(",
                      config.Floats("rope_long_factors", far), "), frequencies / np.array(",
                      config.Floats("rope_short_factors", near), "))\n"});
    }
    case RopeScaling::DYNAMIC: {
      const std::string length = config.Int("rope_trained_length", rope.max_position_embeddings());
      return InOrder({text, "    length = jnp.maximum(jnp.max(positions) + 1, ", length, ").astype(dtype)\n",
                      "    stretch = ", factor(), " * length / ", length, " - (", factor(), " - 1)\n",
                      "    theta = ", theta, " * stretch ** (", dim, " / (", dim,
                      " - 2))\n    frequencies = theta**-exponents.astype(dtype)\n"});
    }
    default:  // NONE
      return text + usual;
  }
}

}  // namespace

std::string JaxEmitter::Angles(const Rope& rope) {
  std::string key = rope.SerializeAsString();
  for (size_t i = 0; i < ropes_.size(); ++i) {
    if (ropes_[i] == key) return absl::StrCat("at.angles", i == 0 ? "" : absl::StrCat("_", i + 1));
  }
  std::string text = absl::StrCat(
      "def $(positions, dtype):\n    \"\"\"Cosines and sines of each pair's turn, [batch, seq, 1, "
      "pairs].\"\"\"\n",
      FrequencyLines(rope, config_),
      "    angle = positions[:, :, None, None].astype(dtype) * jnp.asarray(frequencies, dtype)\n");
  const double magnitude = RopeMagnitude(rope);
  if (magnitude == 1) {
    text += "    return jnp.cos(angle), jnp.sin(angle)\n";
  } else {
    const std::string by =
        config_.Float("rope_magnitude", magnitude, "cosines and sines are multiplied by it");
    absl::StrAppend(&text, "    return jnp.cos(angle) * ", by, ", jnp.sin(angle) * ", by, "\n");
  }
  ropes_.push_back(std::move(key));
  rope_functions_.push_back(functions_.Define("rope_angles", text));
  return Angles(rope);
}

std::string JaxEmitter::Rotate(const Rope& rope) {
  const bool halves = rope.style() == Rope::HALVES;
  const std::string dim = config_.Int("rotary_dim", rope.rotary_dim(), "places of a head that turn");
  std::string text = absl::StrCat(
      "def $(x, angles):\n    \"\"\"x [batch, seq, heads, head_dim]: of the first rotary_dim places "
      "each ",
      halves ? "i turns with i + rotary_dim / 2" : "2i turns with 2i + 1", ".\"\"\"\n",
      "    cos, sin = (angle.astype(x.dtype) for angle in angles)\n", "    x, rest = x[..., :", dim,
      "], x[..., ", dim, ":]\n");
  if (halves) {
    text +=
        "    a, b = jnp.split(x, 2, axis=-1)\n"
        "    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)\n";
  } else {
    text +=
        "    a, b = x[..., 0::2], x[..., 1::2]\n"
        "    turned = jnp.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(x.shape)\n"
        "    return jnp.concatenate([turned, rest], axis=-1)\n";
  }
  return functions_.Define("rotate", text);
}

}  // namespace twinforge
