// Heads and rotary turns out of linear combinations.
#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "importers/onnx/attend.h"

namespace twinforge {
namespace {

constexpr double kTable = 3e-6;  // of a cosine that a file, or an operator of 32 bits, rounded
constexpr double kTheta = 2e-5;  // of a frequency, relative

// What one element is of its token: feature -> coefficient.
using Mix = std::map<int64_t, double>;

std::optional<Mix> MixAt(const OnnxTrace& trace, const Flow& flow, int64_t i, int64_t row) {
  const int64_t width = trace.Width(flow.term);
  Mix mix;
  for (const FlowPart& part : flow.parts) {
    const double coef = flow.factor * CoefAt(part, i);
    if (coef == 0) continue;
    const int64_t feature = IndexAt(part, i) - row * width;
    if (feature < 0 || feature >= width) return std::nullopt;
    mix[feature] += coef;
  }
  return mix;
}

struct AxisPlace {
  int64_t size = 1, stride = 0;
};

std::optional<std::map<char, AxisPlace>> AxesOf(const HeadsOperand& operand) {
  if (operand.axes.size() != operand.flow.shape.size()) return std::nullopt;
  const std::vector<int64_t> strides = Strides(operand.flow.shape);
  std::map<char, AxisPlace> axes;
  for (size_t i = 0; i < operand.axes.size(); ++i)
    axes[operand.axes[i]] = {operand.flow.shape[i], strides[i]};
  return axes;
}

// One element of a head at every position of the first sequence; the other sequences say the same.
bool ElementOf(const OnnxTrace& trace, const Flow& flow, std::map<char, AxisPlace>& axes, int64_t at,
               std::map<int64_t, std::vector<double>>& coefs) {
  const int64_t seq = trace.probe().seq;
  for (int64_t b = 0; b < trace.probe().batch; ++b) {
    std::map<int64_t, std::vector<double>> own;
    for (int64_t s = 0; s < seq; ++s) {
      const std::optional<Mix> mix =
          MixAt(trace, flow, at + b * axes['b'].stride + s * axes['s'].stride, b * seq + s);
      if (!mix) return false;
      for (const auto& [feature, coef] : *mix) {
        auto [place, fresh] = own.try_emplace(feature, std::vector<double>(static_cast<size_t>(seq), 0));
        place->second[s] = coef;
      }
    }
    if (b == 0) coefs = own;
    if (coefs.size() != own.size()) return false;
    for (const auto& [feature, values] : own) {
      const auto first = coefs.find(feature);
      if (first == coefs.end() || first->second != values) return false;
    }
  }
  return !coefs.empty();
}

// theta^(-2i/n), rounded to the number that a config would hold where that is as good.
std::optional<double> ThetaOf(const std::vector<double>& frequencies) {
  const auto pairs = static_cast<double>(frequencies.size());
  if (frequencies.size() == 1) return frequencies[0] == 1 ? std::optional<double>(10000) : std::nullopt;
  const double last = pairs - 1;
  double theta = std::pow(frequencies.back(), -pairs / last);
  if (std::abs(std::round(theta) - theta) < kTheta * theta) theta = std::round(theta);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double want = std::pow(theta, -static_cast<double>(i) / pairs);
    if (!(std::abs(frequencies[i] - want) <= kTheta * want)) return std::nullopt;
  }
  return theta;
}

// Any frequencies at all: factors of those of 10000.
void SetFactors(const std::vector<double>& frequencies, Rope& rope) {
  rope.set_theta(10000);
  RopeScaling& scaling = *rope.mutable_scaling();
  scaling.set_kind(RopeScaling::LONGROPE);
  scaling.set_factor(1);
  scaling.set_attention_factor(1);
  scaling.set_original_max_position_embeddings(int64_t{1} << 30);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double own = std::pow(10000, -static_cast<double>(i) / static_cast<double>(frequencies.size()));
    scaling.add_short_factor(own / frequencies[i]);
    scaling.add_long_factor(own / frequencies[i]);
  }
}

}  // namespace

std::optional<TurnedHeads> HeadsOf(const OnnxTrace& trace, const HeadsOperand& operand, std::string& why) {
  std::optional<std::map<char, AxisPlace>> axes = AxesOf(operand);
  const Flow& flow = operand.flow;
  why = "an operand of attention has no axes of batch, heads, sequence and width";
  if (!axes || (*axes)['b'].size != trace.probe().batch || (*axes)['s'].size != trace.probe().seq ||
      trace.term(flow).count() % trace.rows() != 0)
    return std::nullopt;
  TurnedHeads heads;
  heads.places = {flow.term, (*axes)['h'].size, (*axes)['d'].size, {}};
  if (heads.places.heads < 1 || heads.places.width < 1) return std::nullopt;
  std::vector<int64_t> far_feature;
  for (int64_t h = 0; h < heads.places.heads; ++h) {
    for (int64_t d = 0; d < heads.places.width; ++d) {
      std::map<int64_t, std::vector<double>> coefs;
      why = "a place of a head is no feature of its own token";
      if (!ElementOf(trace, flow, *axes, h * (*axes)['h'].stride + d * (*axes)['d'].stride, coefs))
        return std::nullopt;
      why = "a place of a head mixes more than two features";
      if (coefs.size() > 2) return std::nullopt;
      auto own = coefs.begin(), other = std::next(own);
      if (other != coefs.end() && std::abs(other->second[0]) > std::abs(own->second[0]))
        std::swap(own, other);
      heads.places.features.push_back(own->first);
      heads.near.push_back(own->second);
      far_feature.push_back(coefs.size() == 2 ? other->first : -1);
      heads.far.push_back(coefs.size() == 2 ? other->second : std::vector<double>());
    }
  }
  heads.partner.assign(far_feature.size(), -1);
  for (size_t i = 0; i < far_feature.size(); ++i) {
    if (far_feature[i] < 0) continue;
    const size_t first = i / heads.places.width * heads.places.width;
    for (int64_t d = 0; d < heads.places.width; ++d) {
      if (heads.places.features[first + d] == far_feature[i]) heads.partner[i] = d;
    }
    why = "a place of a head mixes with another head's";
    if (heads.partner[i] < 0) return std::nullopt;
  }
  why.clear();
  return heads;
}

std::optional<TurnFit> FitTurn(const TurnedHeads& heads, std::string& why) {
  const int64_t width = heads.places.width;
  TurnFit fit;
  fit.factor = heads.near[0][0];
  why = "coefficients of a head's places that are no rotary turn";
  const size_t seq = heads.near[0].size();
  int64_t rotary = 0;
  while (rotary < width && heads.partner[rotary] >= 0) ++rotary;
  const auto count = static_cast<int64_t>(heads.near.size());
  if (rotary % 2 != 0 || fit.factor == 0) return std::nullopt;
  const bool halves = rotary > 0 && heads.partner[0] == rotary / 2;
  std::vector<double> frequencies;
  for (int64_t i = 0; i < rotary / 2; ++i) {
    const int64_t d = halves ? i : 2 * i;
    if (seq < 2) return std::nullopt;
    frequencies.push_back(std::atan2(-heads.far[d][1] / fit.factor, heads.near[d][1] / fit.factor));
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t d = i % width;
    const bool turns = d < rotary;
    if ((heads.partner[i] >= 0) != turns) return std::nullopt;
    const int64_t pair = halves ? d % std::max<int64_t>(rotary / 2, 1) : d / 2;
    const bool second = halves ? d >= rotary / 2 : d % 2 == 1;
    if (turns && heads.partner[i] != (halves ? (d + rotary / 2) % rotary : (d ^ 1))) return std::nullopt;
    for (size_t s = 0; s < seq; ++s) {
      const double angle = turns ? static_cast<double>(s) * frequencies[pair] : 0;
      const double near = heads.near[i][s] / fit.factor;
      const double far = turns ? heads.far[i][s] / fit.factor : 0;
      if (!(std::abs(near - std::cos(angle)) <= kTable) ||
          !(std::abs(far - (second ? 1 : -1) * std::sin(angle)) <= kTable))
        return std::nullopt;
    }
  }
  why.clear();
  if (rotary == 0) return fit;
  fit.rope.set_style(halves ? Rope::HALVES : Rope::INTERLEAVED);
  fit.rope.set_rotary_dim(rotary);
  for (const double frequency : frequencies) {
    why = "a frequency of the rotary turn is not positive";
    if (!(frequency > 0)) return std::nullopt;
  }
  if (const std::optional<double> theta = ThetaOf(frequencies)) {
    fit.rope.set_theta(*theta);
  } else {
    SetFactors(frequencies, fit.rope);
  }
  why.clear();
  return fit;
}

}  // namespace twinforge
