// Images in another size: Resize and its forerunner Upsample, axis by axis.
#include <algorithm>
#include <cmath>

#include "onnx/kernels/kernel.h"
#include "onnx/kernels/places.h"
#include "onnx/tensor.h"

namespace twinforge {
namespace {

// What one element of the result is along one axis: a weighted sum of elements, or the extrapolation value.
struct Sample {
  std::vector<int64_t> at;
  std::vector<double> weight;
  bool outside = false;
};

struct ResizeRule {
  std::string mode, coordinates, nearest;
  bool antialias = false, exclude_outside = false;
  double cubic_a = -0.75, extrapolation = 0;
};

struct AxisResize {
  int64_t in = 0, out = 0;
  double scale = 1, roi_start = 0, roi_end = 1;
};

// Where element `i` of the result lies in the input.
double SourceOf(const AxisResize& a, const ResizeRule& rule, double i, OpCall& c) {
  const double in = static_cast<double>(a.in), length = a.scale * in;
  if (rule.coordinates == "half_pixel") return (i + 0.5) / a.scale - 0.5;
  if (rule.coordinates == "asymmetric") return i / a.scale;
  if (rule.coordinates == "align_corners") return length == 1 ? 0 : i * (in - 1) / (length - 1);
  if (rule.coordinates == "pytorch_half_pixel") return length == 1 ? -0.5 : (i + 0.5) / a.scale - 0.5;
  if (rule.coordinates == "tf_half_pixel_for_nn") return (i + 0.5) / a.scale;
  if (rule.coordinates == "half_pixel_symmetric") {
    return in / 2 * (1 - static_cast<double>(a.out) / length) + (i + 0.5) / a.scale - 0.5;
  }
  if (rule.coordinates == "tf_crop_and_resize") {
    const double span = a.roi_end - a.roi_start;
    return a.roi_start * (in - 1) + (length == 1 ? span * (in - 1) / 2 : i * span * (in - 1) / (length - 1));
  }
  c.Fail("knows no such coordinate_transformation_mode");
  return 0;
}

double Cubic(double x, double a) {
  x = std::fabs(x);
  if (x <= 1) return (a + 2) * x * x * x - (a + 3) * x * x + 1;
  return x < 2 ? a * x * x * x - 5 * a * x * x + 8 * a * x - 4 * a : 0;
}

Sample NearestSample(double x, const ResizeRule& rule, OpCall& c) {
  const double low = std::floor(x), part = x - low;
  double at = low;
  if (part != 0) {
    if (rule.nearest == "round_prefer_floor") {
      at = part <= 0.5 ? low : low + 1;
    } else if (rule.nearest == "round_prefer_ceil") {
      at = part < 0.5 ? low : low + 1;
    } else if (rule.nearest == "ceil") {
      at = low + 1;
    } else if (rule.nearest != "floor") {
      c.Fail("knows no such nearest_mode");
    }
  }
  return {{static_cast<int64_t>(at)}, {1}, false};
}

// Linear and cubic: the elements around x, more of them where a smaller result is to be smooth.
Sample SmoothSample(double x, double scale, const ResizeRule& rule) {
  const bool cubic = rule.mode == "cubic";
  // x itself where it is an element counts as its right neighbour.
  const double base = std::floor(x) == x ? x - 1 : std::floor(x), ratio = x - base;
  const double shrink = rule.antialias ? std::min(scale, 1.0) : 1, reach = cubic ? 2 : 1;
  const int64_t first = static_cast<int64_t>(std::floor(-reach / shrink)) + 1;
  const int64_t last = 1 - first;
  Sample sample;
  double sum = 0;
  for (int64_t i = first; i <= last; ++i) {
    const double distance = shrink * (static_cast<double>(i) - ratio);
    const double weight = cubic ? Cubic(distance, rule.cubic_a) : std::max(0.0, 1 - std::fabs(distance));
    sample.at.push_back(static_cast<int64_t>(base) + i);
    sample.weight.push_back(weight);
    sum += weight;
  }
  if (rule.antialias) {
    for (double& weight : sample.weight) weight /= sum;
  }
  return sample;
}

std::vector<Sample> SamplesOf(const AxisResize& a, const ResizeRule& rule, OpCall& c) {
  std::vector<Sample> samples;
  for (int64_t i = 0; i < a.out && c.ok(); ++i) {
    const double x = SourceOf(a, rule, static_cast<double>(i), c);
    if (!(std::fabs(x) < 1e15)) c.Fail("scales beyond all numbers");
    if (!c.ok()) break;
    Sample sample = rule.mode == "nearest" ? NearestSample(x, rule, c) : SmoothSample(x, a.scale, rule);
    sample.outside = rule.coordinates == "tf_crop_and_resize" && (x < 0 || x > static_cast<double>(a.in - 1));
    double sum = 0;
    for (size_t k = 0; k < sample.at.size(); ++k) {
      const bool outside = sample.at[k] < 0 || sample.at[k] >= a.in;
      if (outside && rule.exclude_outside) sample.weight[k] = 0;
      sample.at[k] = std::clamp<int64_t>(sample.at[k], 0, a.in - 1);
      sum += sample.weight[k];
    }
    if (rule.exclude_outside && sum != 0) {
      for (double& weight : sample.weight) weight /= sum;
    }
    samples.push_back(std::move(sample));
  }
  return samples;
}

std::vector<double> AlongAxis(const std::vector<double>& x, const AxisView& view,
                              const std::vector<Sample>& samples, double outside) {
  const int64_t out = static_cast<int64_t>(samples.size());
  std::vector<double> y(static_cast<size_t>(view.outer * out * view.inner));
  for (int64_t o = 0; o < view.outer; ++o) {
    for (int64_t i = 0; i < out; ++i) {
      const Sample& s = samples[i];
      double* to = y.data() + (o * out + i) * view.inner;
      for (int64_t n = 0; n < view.inner; ++n) {
        if (s.outside) to[n] = outside;
        for (size_t k = 0; k < s.at.size() && !s.outside; ++k)
          to[n] += s.weight[k] * x[(o * view.size + s.at[k]) * view.inner + n];
      }
    }
  }
  return y;
}

// Values pass unchanged, whatever their type.
void ResizeNearest(OpCall& c, const std::vector<AxisResize>& axes, const ResizeRule& rule) {
  const OnnxTensor& x = c.In(0);
  Shape shape;
  std::vector<std::vector<Sample>> samples;
  for (const AxisResize& a : axes) {
    samples.push_back(SamplesOf(a, rule, c));
    shape.push_back(a.out);
  }
  ONNX_EXPECT(c, c.Affordable(shape), "");
  const std::vector<int64_t> strides = Strides(x.shape());
  std::vector<int64_t> from(static_cast<size_t>(ElementCount(shape))), index(shape.size());
  std::vector<int32_t> which(from.size(), 0);
  for (size_t k = 0; k < from.size(); ++k) {
    for (size_t d = 0; d < shape.size(); ++d) {
      const Sample& s = samples[d][index[d]];
      from[k] += s.at[0] * strides[d];
      if (s.outside) which[k] = 1;
    }
    if (which[k] == 1) from[k] = 0;
    NextPlace(shape, index);
  }
  const bool extrapolates = std::find(which.begin(), which.end(), 1) != which.end();
  ONNX_EXPECT(c, !extrapolates || !x.is_string(), "extrapolates numbers");
  if (!extrapolates) return c.Out(0, TakeElements(x, shape, from));
  c.Out(0, TakeElements({x, ScalarOf(x.type(), rule.extrapolation)}, shape, which, from));
}

void ResizeBy(OpCall& c, const std::vector<AxisResize>& axes, const ResizeRule& rule) {
  Shape shape;
  for (const AxisResize& a : axes) {
    ONNX_EXPECT(c, a.in > 0 || a.out == 0, "resizes nothing");
    shape.push_back(a.out);
  }
  ONNX_EXPECT(c, c.Affordable(shape), "");
  if (rule.mode == "nearest") return ResizeNearest(c, axes, rule);
  ONNX_EXPECT(c, rule.mode == "linear" || rule.mode == "cubic", "knows no such mode");
  std::vector<double> x = c.Doubles(0);
  Shape now = c.In(0).shape();
  for (size_t d = 0; d < axes.size(); ++d) {
    const bool same =
        axes[d].in == axes[d].out && axes[d].scale == 1 && rule.coordinates != "tf_crop_and_resize";
    if (same) continue;
    const std::vector<Sample> samples = SamplesOf(axes[d], rule, c);
    const AxisView view = ViewAt(now, static_cast<int64_t>(d));
    now[d] = axes[d].out;
    ONNX_EXPECT(c,
                c.Affordable(now) && (samples.empty() || c.Spend(static_cast<double>(ElementCount(now)) *
                                                                 static_cast<double>(samples[0].at.size()))),
                "");
    x = AlongAxis(x, view, samples, rule.extrapolation);
  }
  c.Out(0, TensorOf<double>(c.In(0).type(), now, x));
}

int64_t Scaled(int64_t in, double scale, OpCall& c) {
  const double out = std::floor(static_cast<double>(in) * scale);
  if (!(scale > 0) || !(out < 1e15)) c.Fail("a scale is not positive");
  return c.ok() ? static_cast<int64_t>(out) : 0;
}

// One rule for all named axes: the size that keeps the aspect and is not larger (or not smaller) than asked
// for.
void KeepAspect(std::vector<AxisResize>& axes, const std::vector<int64_t>& named, const std::string& policy) {
  double scale = axes[named[0]].scale;
  for (const int64_t axis : named) {
    scale = policy == "not_larger" ? std::min(scale, axes[axis].scale) : std::max(scale, axes[axis].scale);
  }
  for (const int64_t axis : named) {
    axes[axis].scale = scale;
    axes[axis].out = static_cast<int64_t>(std::floor(scale * static_cast<double>(axes[axis].in) + 0.5));
  }
}

// x, roi, scales, sizes; until operator set 10 x and scales alone.
void Resize(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  const bool old = c.opset() < 11;
  const int roi_at = 1, scales_at = old ? 1 : 2, sizes_at = old ? 9 : 3;
  ResizeRule rule;
  rule.mode = c.Str("mode", "nearest");
  rule.coordinates = old ? "asymmetric" : c.Str("coordinate_transformation_mode", "half_pixel");
  rule.nearest = old ? "floor" : c.Str("nearest_mode", "round_prefer_floor");
  rule.antialias = c.Int("antialias", 0) != 0;
  rule.exclude_outside = c.Int("exclude_outside", 0) != 0;
  rule.cubic_a = c.Float("cubic_coeff_a", -0.75);
  rule.extrapolation = c.Float("extrapolation_value", 0);
  std::vector<int64_t> named = c.IntsAttr("axes", Counted(x.rank()));
  for (int64_t& axis : named) axis = c.Axis(axis, x.rank());
  NormalAxes(c, named, x.rank());
  const bool sized = c.Has(sizes_at) && c.In(sizes_at).count() > 0;
  ONNX_EXPECT(c, sized || c.Has(scales_at), "has neither scales nor sizes");
  const std::vector<double> numbers = c.Doubles(sized ? sizes_at : scales_at);
  ONNX_EXPECT(c, numbers.size() == named.size() && !named.empty(),
              "scales or sizes are not one for each axis");
  std::vector<AxisResize> axes;
  for (const int64_t extent : x.shape()) axes.push_back({extent, extent, 1, 0, 1});
  const bool crop = rule.coordinates == "tf_crop_and_resize";
  const std::vector<double> roi = crop && c.Has(roi_at) ? c.Doubles(roi_at) : std::vector<double>();
  ONNX_EXPECT(c, !crop || roi.size() == 2 * named.size(), "roi is not two numbers for each axis");
  for (size_t k = 0; k < named.size(); ++k) {
    AxisResize& a = axes[named[k]];
    ONNX_EXPECT(c, !sized || (numbers[k] >= 0 && numbers[k] < 1e15), "a size is negative");
    a.out = sized ? static_cast<int64_t>(numbers[k]) : Scaled(a.in, numbers[k], c);
    a.scale = sized ? numbers[k] / static_cast<double>(std::max<int64_t>(a.in, 1)) : numbers[k];
    if (crop) a.roi_start = roi[k], a.roi_end = roi[k + named.size()];
  }
  const std::string policy = c.Str("keep_aspect_ratio_policy", "stretch");
  if (sized && policy != "stretch") KeepAspect(axes, named, policy);
  ResizeBy(c, axes, rule);
}

void Upsample(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  std::vector<double> scales = c.Has(1) ? c.Doubles(1) : c.FloatsAttr("scales");
  if (c.HasAttr("height_scale")) scales = {1, 1, c.Float("height_scale", 1), c.Float("width_scale", 1)};
  ONNX_EXPECT(c, static_cast<int64_t>(scales.size()) == x.rank() && x.rank() > 0,
              "scales are not one for each axis");
  ResizeRule rule;
  rule.mode = c.Str("mode", "nearest");
  if (rule.mode == "bilinear") rule.mode = "linear";
  rule.coordinates = "asymmetric";
  rule.nearest = "floor";
  std::vector<AxisResize> axes;
  for (size_t d = 0; d < scales.size(); ++d)
    axes.push_back({x.shape()[d], Scaled(x.shape()[d], scales[d], c), scales[d], 0, 1});
  ONNX_EXPECT(c, true, "");
  ResizeBy(c, axes, rule);
}

constexpr KernelRow kRows[] = {{"Resize", Resize}, {"Upsample", Upsample}};

}  // namespace

absl::Span<const KernelRow> ResizeKernels() { return kRows; }

}  // namespace twinforge
