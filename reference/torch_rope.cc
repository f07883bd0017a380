// Rotary turning: angles of all pairs once a call, and the turn itself.
#include "absl/strings/str_cat.h"
#include "ir/rope.h"
#include "reference/python.h"
#include "reference/torch_emitter.h"

namespace twinforge {

// Lines that make `frequencies`, radians a position, of the pairs; `theta ** -exponents` but for scaling.
std::string TorchEmitter::FrequencyLines(const Rope& rope) {
  const RopeScaling& scaling = rope.scaling();
  const std::string dim = config_.Int("rotary_dim", rope.rotary_dim(), "places of a head that turn");
  const std::string theta = config_.Float("rope_theta", rope.theta());
  const std::string text = absl::StrCat(
      "    wide = {\"dtype\": torch.float64, \"device\": positions.device}\n    exponents = torch.arange(0, ",
      dim, ", 2, **wide) / ", dim, "\n");
  const std::string usual = absl::StrCat("    frequencies = ", theta, "**-exponents\n");
  const auto factor = [&] { return config_.Float("rope_factor", scaling.factor()); };
  const auto trained = [&] {
    return config_.Int("rope_trained_length", scaling.original_max_position_embeddings());
  };
  switch (scaling.kind()) {
    case RopeScaling::LINEAR:
      return absl::StrCat(text, "    frequencies = ", theta, "**-exponents / ", factor(), "\n");
    case RopeScaling::LLAMA3: {
      const std::string low = config_.Float("rope_low_turns", scaling.low_freq_factor());
      const std::string high = config_.Float("rope_high_turns", scaling.high_freq_factor());
      return InOrder({text, usual, "    turns = ", trained(),
                      " * frequencies / (2 * math.pi)\n    low, high = ", low, ", ", high,
                      "\n    keep = ((turns - low) / (high - low)).clamp(0, 1)",
                      "  # slow pairs are stretched, fast ones stay\n",
                      "    frequencies = keep * frequencies + (1 - keep) * frequencies / ", factor(), "\n"});
    }
    case RopeScaling::YARN: {
      const bool whole = !scaling.has_truncate() || scaling.truncate();
      const std::string fast = config_.Float("rope_beta_fast", scaling.beta_fast());
      const std::string slow = config_.Float("rope_beta_slow", scaling.beta_slow());
      const std::string pair =
          InOrder({"\n    def pair_of(turns):\n",
                   "        \"\"\"The pair that turns so often within the trained length.\"\"\"\n",
                   "        wave = ", trained(), " / (turns * 2 * math.pi)\n        return ", dim,
                   " * math.log(wave) / (2 * math.log(", theta, "))\n\n"});
      return InOrder({text, usual, pair, "    low, high = pair_of(", fast, "), pair_of(", slow,
                      ")  # those between are blended\n",
                      whole ? "    low, high = math.floor(low), math.ceil(high)\n" : "",
                      "    low, high = max(low, 0), min(high, ", dim,
                      " - 1)\n    high = high + 0.001 if low == high else high\n"
                      "    stretch = ((torch.arange(",
                      dim, " // 2, **wide) - low) / (high - low)).clamp(0, 1)\n",
                      "    frequencies = frequencies * (1 - stretch) + frequencies / ", factor(),
                      " * stretch\n"});
    }
    case RopeScaling::LONGROPE: {
      const std::vector<double> near(scaling.short_factor().begin(), scaling.short_factor().end());
      const std::vector<double> far(scaling.long_factor().begin(), scaling.long_factor().end());
      return InOrder({text, usual, "    beyond = positions.max() + 1 > ", trained(),
                      "\n    far = torch.tensor(", config_.Floats("rope_long_factors", far),
                      ", **wide)\n    near = torch.tensor(", config_.Floats("rope_short_factors", near),
                      ", **wide)\n    frequencies = frequencies / torch.where(beyond, far, near)\n"});
    }
    case RopeScaling::DYNAMIC: {
      const std::string length = config_.Int("rope_trained_length", rope.max_position_embeddings());
      return InOrder({text, "    length = (positions.max() + 1).clamp(min=", length, ").to(dtype)\n",
                      "    stretch = ", factor(), " * length / ", length, " - (", factor(), " - 1)\n",
                      "    theta = ", theta, " * stretch ** (", dim, " / (", dim,
                      " - 2))\n    frequencies = theta**-exponents.to(dtype)\n"});
    }
    default:  // NONE
      return text + usual;
  }
}

std::string TorchEmitter::Angles(const Rope& rope) {
  std::string key = rope.SerializeAsString();
  for (size_t i = 0; i < ropes_.size(); ++i) {
    if (ropes_[i] == key) return absl::StrCat("at.angles", i == 0 ? "" : absl::StrCat("_", i + 1));
  }
  std::string text = absl::StrCat(
      "def $(positions, dtype):\n    \"\"\"Cosines and sines of each pair's turn, [batch, seq, 1, "
      "pairs].\"\"\"\n",
      FrequencyLines(rope), "    angle = positions[:, :, None, None].to(dtype) * frequencies.to(dtype)\n");
  const double magnitude = RopeMagnitude(rope);
  if (magnitude == 1) {
    text += "    return torch.cos(angle), torch.sin(angle)\n";
  } else {
    const std::string by =
        config_.Float("rope_magnitude", magnitude, "cosines and sines are multiplied by it");
    absl::StrAppend(&text, "    return torch.cos(angle) * ", by, ", torch.sin(angle) * ", by, "\n");
  }
  ropes_.push_back(std::move(key));
  rope_functions_.push_back(functions_.Define("rope_angles", text));
  return Angles(rope);
}

std::string TorchEmitter::Rotate(const Rope& rope) {
  const bool halves = rope.style() == Rope::HALVES;
  const std::string dim = config_.Int("rotary_dim", rope.rotary_dim(), "places of a head that turn");
  std::string text = absl::StrCat(
      "def $(x, angles):\n    \"\"\"x [batch, seq, heads, head_dim]: of the first rotary_dim places each ",
      halves ? "i turns with i + rotary_dim / 2" : "2i turns with 2i + 1", ".\"\"\"\n",
      "    cos, sin = angles[0].to(x.dtype), angles[1].to(x.dtype)\n", "    x, rest = x[..., :", dim,
      "], x[..., ", dim, ":]\n");
  if (halves) {
    text +=
        "    a, b = x.chunk(2, dim=-1)\n"
        "    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], dim=-1)\n";
  } else {
    text +=
        "    a, b = x[..., 0::2], x[..., 1::2]\n"
        "    turned = torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2)\n"
        "    return torch.cat([turned, rest], dim=-1)\n";
  }
  return functions_.Define("rotate", text);
}

}  // namespace twinforge
