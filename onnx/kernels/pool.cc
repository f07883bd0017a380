// Pooling: one number for each window of an image, and back.
#include <algorithm>
#include <cmath>

#include "onnx/kernels/kernel.h"
#include "onnx/kernels/places.h"
#include "onnx/kernels/window.h"
#include "onnx/tensor.h"

namespace twinforge {
namespace {

struct Planes {
  SlidingWindow window;
  int64_t count = 0;  // batch * channels
  Shape shape;        // of the result
};

Planes PlanesOf(OpCall& c, bool global) {
  Planes planes;
  const Shape& x = c.In(0).shape();
  if (x.size() < 3 && !(global && x.size() == 2)) c.Fail("takes [batch, channels, ...]");
  if (!c.ok()) return planes;
  const Shape image(x.begin() + 2, x.end());
  if (global) {
    SlidingWindow& w = planes.window;
    w.image = w.kernel = image;
    w.strides = w.dilations = w.stops = Shape(image.size(), 1);
    w.low = w.high = Shape(image.size(), 0);
    if (ElementCount(image) == 0) c.Fail("has no element to pool");
    if (c.ok()) FillWindow(c, w);
  } else {
    planes.window = WindowOf(c, image, {});
  }
  planes.count = x[0] * x[1];
  planes.shape = {x[0], x[1]};
  planes.shape.insert(planes.shape.end(), planes.window.stops.begin(), planes.window.stops.end());
  if (c.ok() && c.Affordable(planes.shape)) {
    c.Spend(static_cast<double>(planes.count) *
            static_cast<double>(planes.window.kernel_count * planes.window.stop_count));
  }
  return planes;
}

// A place in row-major order, as a place with the first axis running fastest.
int64_t ColumnMajor(const Shape& shape, int64_t at) {
  int64_t place = 0, stride = ElementCount(shape);
  for (size_t d = shape.size(); d-- > 0;) {
    stride /= shape[d];
    place += at % shape[d] * stride;
    at /= shape[d];
  }
  return place;
}

void PoolMax(OpCall& c, bool global) {
  const Planes planes = PlanesOf(c, global);
  const bool column_major = c.Int("storage_order", 0) != 0;
  ONNX_EXPECT(c, true, "");
  const SlidingWindow& w = planes.window;
  std::vector<int64_t> from, places;
  const bool numbers = WithCarrier(c.In(0).type(), [&](auto zero) {
    const auto x = Elements<decltype(zero)>(c.In(0));
    for (int64_t plane = 0; plane < planes.count; ++plane) {
      for (int64_t s = 0; s < w.stop_count; ++s) {
        int64_t best = -1;
        for (int64_t k = 0; k < w.kernel_count; ++k) {
          const int64_t at = w.at[k * w.stop_count + s];
          if (at < 0) continue;
          const auto v = x[plane * w.image_count + at];
          if (best < 0 || v > x[plane * w.image_count + best] || v != v) best = at;
        }
        from.push_back(best < 0 ? -1 : plane * w.image_count + best);
        places.push_back(plane * w.image_count +
                         (column_major && best >= 0 ? ColumnMajor(w.image, best) : best));
      }
    }
  });
  ONNX_EXPECT(c, numbers, "takes numbers");
  c.Out(0, TakeElements(c.In(0), planes.shape, from));
  c.Out(1, TensorOf<int64_t>(ElementType::kInt64, planes.shape, places));
}
void MaxPool(OpCall& c) { PoolMax(c, false); }
void GlobalMaxPool(OpCall& c) { PoolMax(c, true); }

// Folds each window and finishes with the number of elements that count.
template <typename Step, typename End>
void Pool(OpCall& c, bool global, bool count_padding, Step&& step, End&& end) {
  const Planes planes = PlanesOf(c, global);
  const std::vector<double> x = c.Doubles(0);
  ONNX_EXPECT(c, true, "");
  const SlidingWindow& w = planes.window;
  std::vector<double> y;
  for (int64_t plane = 0; plane < planes.count; ++plane) {
    for (int64_t s = 0; s < w.stop_count; ++s) {
      double sum = 0;
      int64_t count = 0;
      for (int64_t k = 0; k < w.kernel_count; ++k) {
        const int64_t at = w.at[k * w.stop_count + s];
        if (at >= 0) sum = step(sum, x[plane * w.image_count + at]);
        if (at >= 0 || (count_padding && at == kPadding)) ++count;
      }
      y.push_back(end(sum, static_cast<double>(count)));
    }
  }
  c.Out(0, TensorOf<double>(c.In(0).type(), planes.shape, y));
}

double Mean(double sum, double count) { return count == 0 ? 0 : sum / count; }

void AveragePool(OpCall& c) {
  const bool padding = c.Int("count_include_pad", 0) != 0;
  Pool(
      c, false, padding, [](double a, double x) { return a + x; }, Mean);
}
void GlobalAveragePool(OpCall& c) {
  Pool(
      c, true, false, [](double a, double x) { return a + x; }, Mean);
}

void PoolLp(OpCall& c, bool global) {
  const double p = c.opset() < 2 ? c.Float("p", 2) : static_cast<double>(c.Int("p", 2));
  ONNX_EXPECT(c, p > 0, "p is not positive");
  Pool(
      c, global, false, [p](double a, double x) { return a + std::pow(std::fabs(x), p); },
      [p](double sum, double) { return std::pow(sum, 1 / p); });
}
void LpPool(OpCall& c) { PoolLp(c, false); }
void GlobalLpPool(OpCall& c) { PoolLp(c, true); }

// Each element at the place that MaxPool found it; a larger output_shape is filled up with zeros behind.
void MaxUnpool(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  ONNX_EXPECT(c, x.rank() >= 3 && c.In(1).shape() == x.shape(), "input and indices differ in shape");
  const size_t rank = static_cast<size_t>(x.rank()) - 2;
  const std::vector<int64_t> kernel = PerAxis(c, "kernel_shape", rank, 1, 1),
                             strides = PerAxis(c, "strides", rank, 1, 1);
  const std::vector<int64_t> pads = PerAxis(c, "pads", 2 * rank, 0, 0), indices = c.Ints(1);
  ONNX_EXPECT(c, true, "");
  Shape natural = x.shape();
  for (size_t d = 0; d < rank; ++d)
    natural[d + 2] = (natural[d + 2] - 1) * strides[d] + kernel[d] - pads[d] - pads[d + rank];
  ONNX_EXPECT(c, c.Affordable(natural), "");
  std::vector<int64_t> from(static_cast<size_t>(ElementCount(natural)), -1);
  for (size_t k = 0; k < indices.size(); ++k) {
    ONNX_EXPECT(c, indices[k] >= 0 && indices[k] < static_cast<int64_t>(from.size()),
                "an index lies outside of the image");
    from[indices[k]] = static_cast<int64_t>(k);
  }
  const OnnxTensor y = TakeElements(x, natural, from);
  if (!c.Has(2)) return c.Out(0, y);
  const Shape wanted = c.Ints(2);
  ONNX_EXPECT(c, c.Affordable(wanted) && wanted.size() == natural.size(), "output_shape is of another rank");
  for (size_t d = 0; d < wanted.size(); ++d)
    ONNX_EXPECT(c, wanted[d] >= natural[d], "output_shape is smaller than the image");
  std::vector<int64_t> placed(static_cast<size_t>(ElementCount(wanted)), -1), index(wanted.size());
  const std::vector<int64_t> inner = Strides(natural);
  for (int64_t& at : placed) {
    bool inside = true;
    int64_t place = 0;
    for (size_t d = 0; d < wanted.size(); ++d) {
      inside = inside && index[d] < natural[d];
      place += index[d] * inner[d];
    }
    if (inside) at = place;
    NextPlace(wanted, index);
  }
  c.Out(0, TakeElements(y, wanted, placed));
}

constexpr KernelRow kRows[] = {
    {"MaxPool", MaxPool},         {"GlobalMaxPool", GlobalMaxPool},
    {"AveragePool", AveragePool}, {"GlobalAveragePool", GlobalAveragePool},
    {"LpPool", LpPool},           {"GlobalLpPool", GlobalLpPool},
    {"MaxUnpool", MaxUnpool},
};

}  // namespace

absl::Span<const KernelRow> PoolKernels() { return kRows; }

}  // namespace twinforge
