// Softmax and normalisations.
#include <algorithm>
#include <cmath>
#include <limits>

#include "onnx/kernels/kernel.h"
#include "onnx/kernels/places.h"
#include "onnx/tensor.h"

namespace twinforge {
namespace {

// Calls `work` with every line of `view`: its elements are values[place(i)], i below view.size.
template <typename Work>
void ForEachLine(const AxisView& view, Work&& work) {
  for (int64_t o = 0; o < view.outer; ++o) {
    for (int64_t n = 0; n < view.inner; ++n) {
      work([&view, o, n](int64_t i) { return (o * view.size + i) * view.inner + n; });
    }
  }
}

// Until operator set 12 all axes from `axis` on were one.
AxisView SoftmaxView(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  if (c.opset() >= 13) return ViewAt(x.shape(), c.Axis(c.Int("axis", -1), x.rank()));
  const int64_t given = c.Int("axis", 1);
  const int64_t axis = given == x.rank() ? given : c.Axis(given, x.rank());
  AxisView view;
  for (int64_t d = 0; d < x.rank(); ++d) (d < axis ? view.outer : view.size) *= x.dim(d);
  return view;
}

enum class SoftKind { kSoftmax, kLogSoftmax, kHardmax };

void Soft(OpCall& c, SoftKind kind) {
  ONNX_EXPECT(c, c.In(0).rank() > 0 || kind != SoftKind::kHardmax, "takes no scalar");
  const AxisView view = SoftmaxView(c);
  std::vector<double> x = c.Doubles(0);
  const ElementType type = c.In(0).type();
  ONNX_EXPECT(c, IsFloatingElement(type), "takes floating numbers");
  ForEachLine(view, [&](auto place) {
    if (view.size == 0) return;
    int64_t best = 0;
    for (int64_t i = 1; i < view.size; ++i) {
      if (x[place(i)] > x[place(best)]) best = i;
    }
    const double most = x[place(best)];
    // Each step in the type, as the standard's function of primitive operators has it.
    const auto power = [&](int64_t i) {
      return RoundedTo(type, std::exp(RoundedTo(type, x[place(i)] - most)));
    };
    double sum = 0;
    for (int64_t i = 0; i < view.size; ++i) sum += power(i);
    sum = RoundedTo(type, sum);
    for (int64_t i = 0; i < view.size; ++i) {
      double& v = x[place(i)];
      if (kind == SoftKind::kSoftmax) v = power(i) / sum;
      if (kind == SoftKind::kLogSoftmax) v = v - most - std::log(sum);
      if (kind == SoftKind::kHardmax) v = i == best ? 1 : 0;
    }
  });
  c.Out(0, TensorOf<double>(c.In(0).type(), c.In(0).shape(), x));
}
void Softmax(OpCall& c) { Soft(c, SoftKind::kSoftmax); }
void LogSoftmax(OpCall& c) { Soft(c, SoftKind::kLogSoftmax); }
void Hardmax(OpCall& c) { Soft(c, SoftKind::kHardmax); }

// Multiplies by an input that broadcasts to the whole, or adds it.
void Apply(OpCall& c, int input, const Shape& shape, std::vector<double>& y, bool multiply) {
  if (!c.Has(input)) return;
  ONNX_EXPECT(c, BroadcastsTo(c.In(input).shape(), shape), "a scale or bias does not broadcast to the input");
  const std::vector<double> w = c.Doubles(input);
  ONNX_EXPECT(c, true, "");
  const std::vector<int64_t> at = BroadcastPlaces(c.In(input).shape(), shape);
  for (size_t k = 0; k < y.size(); ++k) y[k] = multiply ? y[k] * w[at[k]] : y[k] + w[at[k]];
}

// All axes from `axis` on are one. What is computed is rounded to `stash` before it is scaled.
void NormaliseFrom(OpCall& c, bool centred) {
  const OnnxTensor& x = c.In(0);
  const int64_t axis = c.Axis(c.Int("axis", -1), x.rank());
  const double epsilon = c.Float("epsilon", 1e-5f);
  const ElementType stash = ElementTypeFromCode(c.Int("stash_type", 1)).value_or(ElementType::kFloat);
  std::vector<double> y = c.Doubles(0);
  ONNX_EXPECT(c, true, "");
  int64_t lines = 1;
  Shape statistics = x.shape();
  for (int64_t d = 0; d < x.rank(); ++d) {
    if (d < axis) lines *= x.dim(d);
    if (d >= axis) statistics[d] = 1;
  }
  const int64_t size = lines == 0 ? 0 : x.count() / lines;
  std::vector<double> means, inverses;
  for (int64_t line = 0; line < lines; ++line) {
    double* row = y.data() + line * size;
    double mean = 0, square = 0;
    for (int64_t i = 0; centred && i < size; ++i) mean += row[i] / static_cast<double>(size);
    for (int64_t i = 0; i < size; ++i)
      square += (row[i] - mean) * (row[i] - mean) / static_cast<double>(size);
    const double inverse = 1 / std::sqrt(square + epsilon);
    for (int64_t i = 0; i < size; ++i) row[i] = RoundedTo(x.type(), (row[i] - mean) * inverse);
    means.push_back(mean);
    inverses.push_back(inverse);
  }
  Apply(c, 1, x.shape(), y, true);
  Apply(c, 2, x.shape(), y, false);
  ONNX_EXPECT(c, true, "");
  c.Out(0, TensorOf<double>(x.type(), x.shape(), y));
  if (centred) {
    c.Out(1, TensorOf<double>(stash, statistics, means));
    c.Out(2, TensorOf<double>(stash, statistics, inverses));
  } else {
    c.Out(1, TensorOf<double>(stash, statistics, inverses));
  }
}
void LayerNormalization(OpCall& c) { NormaliseFrom(c, true); }
void RmsNormalization(OpCall& c) { NormaliseFrom(c, false); }

// A vector of one element for each channel (axis 1).
std::vector<double> PerChannel(OpCall& c, int input, int64_t channels) {
  if (c.In(input).rank() != 1 || c.In(input).count() != channels)
    c.Fail("an input is not one number for each channel");
  return c.Doubles(input);
}

void BatchNormalization(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  ONNX_EXPECT(c, x.rank() >= 1, "takes no scalar");
  const int64_t channels = x.rank() == 1 ? 1 : x.dim(1);
  std::vector<double> y = c.Doubles(0);
  const std::vector<double> scale = PerChannel(c, 1, channels), bias = PerChannel(c, 2, channels);
  std::vector<double> mean = PerChannel(c, 3, channels), variance = PerChannel(c, 4, channels);
  const double epsilon = c.Float("epsilon", 1e-5f), momentum = c.Float("momentum", 0.9f);
  const bool training =
      c.opset() >= 14 ? c.Int("training_mode", 0) != 0 : c.opset() < 7 && c.Int("is_test", 0) == 0;
  ONNX_EXPECT(c, true, "");
  const AxisView view = x.rank() == 1 ? AxisView{x.count(), 1, 1} : ViewAt(x.shape(), 1);
  const double size = static_cast<double>(view.outer * view.inner);
  std::vector<double> running_mean = mean, running_variance = variance;
  if (training) {
    std::fill(mean.begin(), mean.end(), 0);
    std::fill(variance.begin(), variance.end(), 0);
    const auto channel = [&](size_t k) { return static_cast<int64_t>(k) / view.inner % view.size; };
    for (size_t k = 0; k < y.size(); ++k) mean[channel(k)] += y[k] / size;
    for (size_t k = 0; k < y.size(); ++k)
      variance[channel(k)] += (y[k] - mean[channel(k)]) * (y[k] - mean[channel(k)]) / size;
    for (int64_t i = 0; i < channels; ++i) {
      running_mean[i] = running_mean[i] * momentum + mean[i] * (1 - momentum);
      running_variance[i] = running_variance[i] * momentum + variance[i] * (1 - momentum);
    }
  }
  for (size_t k = 0; k < y.size(); ++k) {
    const int64_t i = static_cast<int64_t>(k) / view.inner % view.size;
    y[k] = (y[k] - mean[i]) / std::sqrt(variance[i] + epsilon) * scale[i] + bias[i];
  }
  c.Out(0, TensorOf<double>(x.type(), x.shape(), y));
  c.Out(1, TensorOf<double>(c.In(3).type(), c.In(3).shape(), running_mean));
  c.Out(2, TensorOf<double>(c.In(4).type(), c.In(4).shape(), running_variance));
}

// Groups of channels, each with all its places, are brought to mean 0 and variance 1.
void NormaliseGroups(OpCall& c, int64_t groups, bool per_group) {
  const OnnxTensor& x = c.In(0);
  ONNX_EXPECT(c, x.rank() >= 2, "takes [batch, channels, ...]");
  const int64_t channels = x.dim(1);
  ONNX_EXPECT(c, groups > 0 && channels % groups == 0, "the channels are no multiple of the groups");
  std::vector<double> y = c.Doubles(0);
  const std::vector<double> scale = PerChannel(c, 1, per_group ? groups : channels),
                            bias = PerChannel(c, 2, per_group ? groups : channels);
  const double epsilon = c.Float("epsilon", 1e-5f);
  ONNX_EXPECT(c, true, "");
  const int64_t lines = x.dim(0) * groups, size = lines == 0 ? 0 : x.count() / lines,
                inner = ViewAt(x.shape(), 1).inner;
  for (int64_t line = 0; line < lines; ++line) {
    double* row = y.data() + line * size;
    double mean = 0, square = 0;
    for (int64_t i = 0; i < size; ++i) mean += row[i] / static_cast<double>(size);
    for (int64_t i = 0; i < size; ++i)
      square += (row[i] - mean) * (row[i] - mean) / static_cast<double>(size);
    for (int64_t i = 0; i < size; ++i) {
      const int64_t channel = line % groups * (channels / groups) + i / inner;
      const int64_t at = per_group ? line % groups : channel;
      row[i] = (row[i] - mean) / std::sqrt(square + epsilon) * scale[at] + bias[at];
    }
  }
  c.Out(0, TensorOf<double>(x.type(), x.shape(), y));
}
void InstanceNormalization(OpCall& c) {
  NormaliseGroups(c, c.In(0).rank() >= 2 ? std::max<int64_t>(c.In(0).dim(1), 1) : 1, false);
}
// Scale and bias were one for each group until operator set 20.
void GroupNormalization(OpCall& c) { NormaliseGroups(c, c.Int("num_groups", 0), c.opset() < 21); }

void Lrn(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  const int64_t size = c.Int("size", 0);
  const double alpha = c.Float("alpha", 0.0001f), beta = c.Float("beta", 0.75), bias = c.Float("bias", 1);
  ONNX_EXPECT(c, x.rank() >= 2 && size > 0, "takes [batch, channels, ...] and a size");
  const std::vector<double> v = c.Doubles(0);
  ONNX_EXPECT(c, true, "");
  const AxisView view = ViewAt(x.shape(), 1);
  std::vector<double> y(v.size());
  ForEachLine(view, [&](auto place) {
    for (int64_t i = 0; i < view.size; ++i) {
      double sum = 0;
      const int64_t low = std::max<int64_t>(0, i - (size - 1) / 2),
                    high = std::min(view.size - 1, i + size / 2);
      for (int64_t j = low; j <= high; ++j) sum += v[place(j)] * v[place(j)];
      y[place(i)] = v[place(i)] / std::pow(bias + alpha / static_cast<double>(size) * sum, beta);
    }
  });
  c.Out(0, TensorOf<double>(x.type(), x.shape(), y));
}

void LpNormalization(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  const int64_t p = c.Int("p", 2), axis = c.Axis(c.Int("axis", -1), x.rank());
  std::vector<double> y = c.Doubles(0);
  ONNX_EXPECT(c, p == 1 || p == 2, "p is neither 1 nor 2");
  ForEachLine(ViewAt(x.shape(), axis), [&](auto place) {
    double norm = 0;
    for (int64_t i = 0; i < x.dim(axis); ++i)
      norm += p == 1 ? std::fabs(y[place(i)]) : y[place(i)] * y[place(i)];
    if (p == 2) norm = std::sqrt(norm);
    for (int64_t i = 0; i < x.dim(axis); ++i) y[place(i)] = norm == 0 ? 0 : y[place(i)] / norm;
  });
  c.Out(0, TensorOf<double>(x.type(), x.shape(), y));
}

void MeanVarianceNormalization(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  const std::vector<int64_t> axes = NormalAxes(c, c.IntsAttr("axes", {0, 2, 3}), x.rank());
  std::vector<double> y = c.Doubles(0);
  ONNX_EXPECT(c, true, "");
  Shape kept = x.shape();
  for (const int64_t axis : axes) kept[axis] = 1;
  std::vector<int64_t> strides = Strides(kept);
  for (const int64_t axis : axes) strides[axis] = 0;
  const std::vector<int64_t> group = StridedPlaces(x.shape(), strides, 0);
  const size_t groups = static_cast<size_t>(ElementCount(kept));
  std::vector<double> mean(groups), square(groups);
  const double size = static_cast<double>(x.count()) / static_cast<double>(std::max<size_t>(groups, 1));
  for (size_t k = 0; k < y.size(); ++k) mean[group[k]] += y[k] / size;
  for (size_t k = 0; k < y.size(); ++k)
    square[group[k]] += (y[k] - mean[group[k]]) * (y[k] - mean[group[k]]) / size;
  for (size_t k = 0; k < y.size(); ++k) y[k] = (y[k] - mean[group[k]]) / (std::sqrt(square[group[k]]) + 1e-9);
  c.Out(0, TensorOf<double>(x.type(), x.shape(), y));
}

constexpr KernelRow kRows[] = {
    {"Softmax", Softmax},
    {"LogSoftmax", LogSoftmax},
    {"Hardmax", Hardmax},
    {"LayerNormalization", LayerNormalization},
    {"RMSNormalization", RmsNormalization},
    {"BatchNormalization", BatchNormalization},
    {"InstanceNormalization", InstanceNormalization},
    {"GroupNormalization", GroupNormalization},
    {"LRN", Lrn},
    {"LpNormalization", LpNormalization},
    {"MeanVarianceNormalization", MeanVarianceNormalization},
};

}  // namespace

absl::Span<const KernelRow> NormKernels() { return kRows; }

}  // namespace twinforge
