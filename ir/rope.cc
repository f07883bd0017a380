#include "ir/rope.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace twinforge {

double DefaultScale(int64_t head_dim) { return std::pow(static_cast<double>(head_dim), -0.5); }

double DefaultLatentScale(int64_t qk_dim, const RopeScaling& scaling) {
  const double scale = DefaultScale(qk_dim);
  if (scaling.kind() == RopeScaling::NONE || scaling.mscale_all_dim() == 0) return scale;
  if (scaling.factor() <= 1) return scale;
  const double mscale = 0.1 * scaling.mscale_all_dim() * std::log(scaling.factor()) + 1.0;
  return scale * mscale * mscale;
}

double DefaultScale(const Graph& graph, const Node& node) {
  if (node.op == OpKind::kAttention) return DefaultScale(graph.param(node, "q").type.Get("head_dim").size);
  TWIN_CHECK(node.op == OpKind::kLatentAttention, "only attention has a softmax scale");
  const int64_t qk_dim = graph.param(node, "q_nope").type.Get("nope_dim").size +
                         graph.param(node, "q_rope").type.Get("rope_dim").size;
  return DefaultLatentScale(qk_dim, node.attrs->latent_attention().rope().scaling());
}

namespace {

// The pair that turns `turns` times within the trained length (Peng et al. 2023, arXiv:2309.00071,
// section 3.2).
double PairOf(double turns, const Rope& rope) {
  const double trained = static_cast<double>(rope.scaling().original_max_position_embeddings());
  return static_cast<double>(rope.rotary_dim()) * std::log(trained / (turns * 2 * M_PI)) /
         (2 * std::log(rope.theta()));
}

// Pairs that turn often keep their frequency, slow ones are interpolated, those between are blended.
void ScaleYarn(const Rope& rope, std::vector<double>& frequencies) {
  const RopeScaling& scaling = rope.scaling();
  double low = PairOf(scaling.beta_fast(), rope), high = PairOf(scaling.beta_slow(), rope);
  if (!scaling.has_truncate() || scaling.truncate()) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(rope.rotary_dim() - 1));
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / scaling.factor() * ramp + frequencies[i] * (1 - ramp);
  }
}

// The same idea by wavelength (Llama 3.1).
void ScaleLlama3(const RopeScaling& scaling, std::vector<double>& frequencies) {
  const double trained = static_cast<double>(scaling.original_max_position_embeddings());
  const double low = scaling.low_freq_factor(), high = scaling.high_freq_factor();
  for (double& frequency : frequencies) {
    const double turns = trained * frequency / (2 * M_PI);
    const double smooth = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    frequency = (1 - smooth) * frequency / scaling.factor() + smooth * frequency;
  }
}

double Mscale(double factor, double weight) { return factor <= 1 ? 1 : 0.1 * weight * std::log(factor) + 1; }

}  // namespace

std::vector<double> RopeFrequencies(const Rope& rope, RopeLength length) {
  const RopeScaling& scaling = rope.scaling();
  std::vector<double> frequencies;
  for (int64_t i = 0; i < rope.rotary_dim() / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(rope.rotary_dim());
    frequencies.push_back(std::pow(rope.theta(), exponent));
  }
  switch (scaling.kind()) {
    case RopeScaling::LINEAR:
      for (double& frequency : frequencies) frequency /= scaling.factor();
      break;
    case RopeScaling::YARN:
      ScaleYarn(rope, frequencies);
      break;
    case RopeScaling::LLAMA3:
      ScaleLlama3(scaling, frequencies);
      break;
    case RopeScaling::LONGROPE: {
      const auto& factors = length == RopeLength::kBeyond ? scaling.long_factor() : scaling.short_factor();
      for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= factors[static_cast<int>(i)];
      break;
    }
    default:
      break;  // NONE, DYNAMIC, and the generated sentinels of an open enum
  }
  return frequencies;
}

double RopeMagnitude(const Rope& rope) {
  const RopeScaling& scaling = rope.scaling();
  if (scaling.kind() != RopeScaling::YARN && scaling.kind() != RopeScaling::LONGROPE) return 1;
  if (scaling.has_attention_factor()) return scaling.attention_factor();
  if (scaling.kind() == RopeScaling::YARN) {
    if (scaling.mscale() == 0 || scaling.mscale_all_dim() == 0) return Mscale(scaling.factor(), 1);
    return Mscale(scaling.factor(), scaling.mscale()) / Mscale(scaling.factor(), scaling.mscale_all_dim());
  }
  const double trained = static_cast<double>(scaling.original_max_position_embeddings());
  const double factor = scaling.factor() != 0 ? scaling.factor()
                                              : static_cast<double>(rope.max_position_embeddings()) / trained;
  return factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(trained));
}

}  // namespace twinforge
