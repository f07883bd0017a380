// Fourier transforms, window functions, the mel scale.
#include <algorithm>
#include <cmath>
#include <complex>

#include "onnx/kernels/kernel.h"
#include "onnx/kernels/places.h"
#include "onnx/tensor.h"

namespace twinforge {
namespace {

using Complex = std::complex<double>;

// The transform of `length` numbers by its definition; the inverse is divided by the length.
std::vector<Complex> Transform(const std::vector<Complex>& x, bool inverse) {
  const size_t n = x.size();
  std::vector<Complex> roots(n), y(n);
  for (size_t k = 0; k < n; ++k) {
    const double angle = (inverse ? 2 : -2) * M_PI * static_cast<double>(k) / static_cast<double>(n);
    roots[k] = {std::cos(angle), std::sin(angle)};
  }
  for (size_t k = 0; k < n; ++k) {
    for (size_t t = 0; t < n; ++t) y[k] += x[t] * roots[k * t % n];
    if (inverse) y[k] /= static_cast<double>(n);
  }
  return y;
}

// Axis and length are inputs since operator set 20.
void Dft(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  const bool inverse = c.Int("inverse", 0) != 0, onesided = c.Int("onesided", 0) != 0;
  ONNX_EXPECT(c, x.rank() >= 2 && (x.shape().back() == 1 || x.shape().back() == 2),
              "its last axis is not one of real or complex numbers");
  const int64_t axis = c.Axis(c.opset() < 20 ? c.Int("axis", 1) : c.IntScalar(2, -2), x.rank());
  ONNX_EXPECT(c, axis < x.rank() - 1, "transforms the axis of real and imaginary parts");
  const bool folded = inverse && onesided;  // half a spectrum to real numbers
  const int64_t given = x.dim(axis), length = c.IntScalar(1, folded ? 2 * (given - 1) : given);
  ONNX_EXPECT(c, length >= 1, "the transform has no length");
  const int64_t out = onesided && !inverse ? length / 2 + 1 : length, parts = folded ? 1 : 2,
                in_parts = x.shape().back();
  Shape shape = x.shape();
  shape[axis] = out;
  shape.back() = parts;
  const std::vector<double> v = c.Doubles(0);
  ONNX_EXPECT(c, c.Affordable(shape) && c.Affordable({length}), "");
  Shape lines(x.shape().begin(), x.shape().end() - 1);
  const AxisView view = ViewAt(lines, axis);
  ONNX_EXPECT(c,
              c.Spend(4.0 * static_cast<double>(view.outer * view.inner) * static_cast<double>(length) *
                      static_cast<double>(length)),
              "");
  std::vector<double> y(static_cast<size_t>(ElementCount(shape)));
  for (int64_t line = 0; line < view.outer * view.inner; ++line) {
    const int64_t o = line / view.inner, n = line % view.inner;
    std::vector<Complex> signal(static_cast<size_t>(length));
    for (int64_t t = 0; t < std::min(given, folded ? length / 2 + 1 : length); ++t) {
      const int64_t at = ((o * given + t) * view.inner + n) * in_parts;
      signal[t] = {v[at], in_parts == 2 ? v[at + 1] : 0};
    }
    for (int64_t t = 1; folded && 2 * t < length; ++t) signal[length - t] = std::conj(signal[t]);
    const std::vector<Complex> spectrum = Transform(signal, inverse);
    for (int64_t k = 0; k < out; ++k) {
      double* to = y.data() + ((o * out + k) * view.inner + n) * parts;
      to[0] = spectrum[k].real();
      if (parts == 2) to[1] = spectrum[k].imag();
    }
  }
  c.Out(0, TensorOf<double>(x.type(), shape, y));
}

// signal [batch, length, 1 or 2], frame_step, window, frame_length -> [batch, frames, bins, 2].
void Stft(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  const int64_t step = c.IntScalar(1, 0);
  const std::vector<double> v = c.Doubles(0);
  std::vector<double> window = c.Has(2) ? c.Doubles(2) : std::vector<double>();
  const int64_t length = c.IntScalar(3, static_cast<int64_t>(window.size()));
  ONNX_EXPECT(c, (x.rank() == 2 || x.rank() == 3) && step > 0 && length > 0 && length <= x.dim(1),
              "signal, step and length do not fit");
  if (window.empty()) window.assign(static_cast<size_t>(length), 1);
  ONNX_EXPECT(c, static_cast<int64_t>(window.size()) == length,
              "the window is of another length than the frames");
  const int64_t batch = x.dim(0), samples = x.dim(1), parts = x.rank() == 3 ? x.dim(2) : 1;
  ONNX_EXPECT(c, parts == 1 || parts == 2, "its last axis is not one of real or complex numbers");
  const int64_t frames = (samples - length) / step + 1,
                bins = c.Int("onesided", 1) != 0 ? length / 2 + 1 : length;
  const Shape shape = {batch, frames, bins, 2};
  ONNX_EXPECT(c,
              c.Affordable(shape) && c.Spend(4.0 * static_cast<double>(batch * frames) *
                                             static_cast<double>(length) * static_cast<double>(length)),
              "");
  std::vector<double> y;
  for (int64_t f = 0; f < batch * frames; ++f) {
    std::vector<Complex> frame;
    for (int64_t t = 0; t < length; ++t) {
      const int64_t at = (f / frames * samples + f % frames * step + t) * parts;
      frame.push_back(Complex(v[at], parts == 2 ? v[at + 1] : 0) * window[t]);
    }
    const std::vector<Complex> spectrum = Transform(frame, false);
    for (int64_t k = 0; k < bins; ++k) y.insert(y.end(), {spectrum[k].real(), spectrum[k].imag()});
  }
  c.Out(0, TensorOf<double>(x.type(), shape, y));
}

std::optional<ElementType> OutputType(OpCall& c) {
  const std::optional<ElementType> type = ElementTypeFromCode(c.Int("output_datatype", 1));
  if (!type || BytesInMemory(*type) == 0) c.Fail("names no type of numbers");
  return type;
}

// a0 - a1 cos(2 pi n / N) + a2 cos(4 pi n / N); N is the size, or one less where the window is symmetric.
void CosineWindow(OpCall& c, double a0, double a1, double a2) {
  const int64_t size = c.IntScalar(0, 0);
  const std::optional<ElementType> type = OutputType(c);
  ONNX_EXPECT(c, c.Affordable({size}), "");
  const double n = static_cast<double>(c.Int("periodic", 1) != 0 ? size : size - 1);
  std::vector<double> y;
  for (int64_t k = 0; k < size; ++k) {
    const double angle = 2 * M_PI * static_cast<double>(k) / n;
    y.push_back(size == 1 ? 1 : a0 - a1 * std::cos(angle) + a2 * std::cos(2 * angle));
  }
  c.Out(0, TensorOf<double>(*type, {size}, y));
}
void HannWindow(OpCall& c) { CosineWindow(c, 0.5, 0.5, 0); }
void HammingWindow(OpCall& c) { CosineWindow(c, 25.0 / 46, 21.0 / 46, 0); }
void BlackmanWindow(OpCall& c) { CosineWindow(c, 0.42, 0.5, 0.08); }

// Triangles on the mel scale: bins, length of the transform, sample rate, lowest and highest frequency.
void MelWeightMatrix(OpCall& c) {
  const int64_t bins = c.IntScalar(0, 0), length = c.IntScalar(1, 0), rate = c.IntScalar(2, 0);
  const double low = c.DoubleScalar(3, 0), high = c.DoubleScalar(4, 0);
  const std::optional<ElementType> type = OutputType(c);
  ONNX_EXPECT(c, bins > 0 && length > 0 && rate > 0 && low >= 0 && high > low && c.Affordable({bins, length}),
              "its numbers are not positive");
  const int64_t rows = length / 2 + 1;
  const auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  const double step = (mel(high) - mel(low)) / static_cast<double>(bins + 2);
  std::vector<int64_t> edge;
  for (int64_t k = 0; k < bins + 2; ++k) {
    const double hertz = 700 * (std::pow(10, (static_cast<double>(k) * step + mel(low)) / 2595) - 1);
    edge.push_back(static_cast<int64_t>(
        std::floor(static_cast<double>(length + 1) * hertz / static_cast<double>(rate))));
    ONNX_EXPECT(c, edge.back() < rows, "its highest frequency is beyond the transform's");
  }
  std::vector<double> y(static_cast<size_t>(rows * bins));
  for (int64_t i = 0; i < bins; ++i) {
    const int64_t left = edge[i], middle = edge[i + 1], right = edge[i + 2];
    if (left == middle) y[middle * bins + i] = 1;
    for (int64_t j = left; j <= middle && left != middle; ++j)
      y[j * bins + i] = static_cast<double>(j - left) / static_cast<double>(middle - left);
    for (int64_t j = middle; j < right; ++j)
      y[j * bins + i] = static_cast<double>(right - j) / static_cast<double>(right - middle);
  }
  c.Out(0, TensorOf<double>(*type, {rows, bins}, y));
}

constexpr KernelRow kRows[] = {
    {"DFT", Dft},
    {"STFT", Stft},
    {"HannWindow", HannWindow},
    {"HammingWindow", HammingWindow},
    {"BlackmanWindow", BlackmanWindow},
    {"MelWeightMatrix", MelWeightMatrix},
};

}  // namespace

absl::Span<const KernelRow> SignalKernels() { return kRows; }

}  // namespace twinforge
