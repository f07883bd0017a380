// Convolutions, as products of a kernel's matrix with the image's windows.
#include <algorithm>
#include <cmath>

#include "onnx/kernels/kernel.h"
#include "onnx/kernels/matmul.h"
#include "onnx/kernels/window.h"
#include "onnx/tensor.h"

namespace twinforge {
namespace {

Shape SpatialOf(const Shape& shape) {
  return shape.size() < 2 ? Shape() : Shape(shape.begin() + 2, shape.end());
}

Shape ImageShape(int64_t batch, int64_t channels, const Shape& spatial) {
  Shape shape = {batch, channels};
  shape.insert(shape.end(), spatial.begin(), spatial.end());
  return shape;
}

template <typename T>
struct Convolved {
  Shape shape;
  std::vector<T> values;
};

// x [batch, groups * c, ...], kernel [m, c, ...] -> [batch, m, stops...].
template <typename T>
Convolved<T> Convolve(OpCall& c, const Shape& x_shape, const std::vector<T>& x, const Shape& k_shape,
                      const std::vector<T>& kernel) {
  Convolved<T> out;
  const int64_t groups = c.Int("group", 1);
  const bool fits = x_shape.size() >= 3 && k_shape.size() == x_shape.size() && groups > 0 &&
                    k_shape[0] % groups == 0 && k_shape[1] * groups == x_shape[1];
  if (!fits) c.Fail("image " + ShapeText(x_shape) + " and kernel " + ShapeText(k_shape) + " do not convolve");
  if (!c.ok()) return out;
  const SlidingWindow w = WindowOf(c, SpatialOf(x_shape), SpatialOf(k_shape));
  if (c.ok() && w.kernel != SpatialOf(k_shape)) c.Fail("kernel_shape is not the kernel's");
  const int64_t batch = x_shape[0], in = k_shape[1], m = k_shape[0] / groups, rows = in * w.kernel_count;
  if (!c.ok() || !c.Affordable({rows, w.stop_count}) || !c.Affordable(ImageShape(batch, k_shape[0], w.stops)))
    return out;
  if (!c.Spend(static_cast<double>(batch * k_shape[0]) * static_cast<double>(rows * w.stop_count)))
    return out;
  out.shape = ImageShape(batch, k_shape[0], w.stops);
  out.values.assign(static_cast<size_t>(ElementCount(out.shape)), T{0});
  std::vector<T> columns(static_cast<size_t>(rows * w.stop_count));
  for (int64_t bg = 0; bg < batch * groups; ++bg) {
    const T* image = x.data() + bg * in * w.image_count;
    for (int64_t i = 0; i < in; ++i) {
      for (int64_t k = 0; k < w.kernel_count * w.stop_count; ++k) {
        columns[i * w.kernel_count * w.stop_count + k] =
            w.at[k] >= 0 ? image[i * w.image_count + w.at[k]] : T{0};
      }
    }
    const int64_t g = bg % groups;
    MultiplyInto(kernel.data() + g * m * rows, columns.data(), out.values.data() + bg * m * w.stop_count, m,
                 rows, w.stop_count);
  }
  return out;
}

// Adds one number for each channel of [batch, channels, ...].
void AddBias(OpCall& c, int input, const Shape& shape, std::vector<double>& values) {
  if (!c.Has(input)) return;
  const std::vector<double> bias = c.Doubles(input);
  ONNX_EXPECT(c, static_cast<int64_t>(bias.size()) == shape[1],
              "the bias is not one number for each channel");
  const int64_t inner = ElementCount(SpatialOf(shape));
  for (size_t k = 0; k < values.size(); ++k) values[k] += bias[static_cast<int64_t>(k) / inner % shape[1]];
}

void Conv(OpCall& c) {
  Convolved<double> y = Convolve<double>(c, c.In(0).shape(), c.Doubles(0), c.In(1).shape(), c.Doubles(1));
  ONNX_EXPECT(c, true, "");
  AddBias(c, 2, y.shape, y.values);
  ONNX_EXPECT(c, true, "");
  c.Out(0, TensorOf<double>(c.In(0).type(), y.shape, y.values));
}

// A zero point for all, or for each output channel of the kernel (its first axis).
std::vector<int64_t> KernelWithoutZero(OpCall& c, int input, int zero_point) {
  std::vector<int64_t> w = c.Ints(input);
  if (!c.ok() || !c.Has(zero_point)) return w;
  const std::vector<int64_t> zero = c.Ints(zero_point);
  const int64_t channels = c.In(input).rank() > 0 ? c.In(input).dim(0) : 1;
  if (zero.size() != 1 && static_cast<int64_t>(zero.size()) != channels)
    c.Fail("a zero point is not one for each channel");
  if (!c.ok()) return w;
  const int64_t inner = static_cast<int64_t>(w.size()) / std::max<int64_t>(channels, 1);
  for (size_t k = 0; k < w.size(); ++k) w[k] -= zero[zero.size() == 1 ? 0 : static_cast<int64_t>(k) / inner];
  return w;
}

std::vector<int64_t> ImageWithoutZero(OpCall& c, int input, int zero_point) {
  std::vector<int64_t> x = c.Ints(input);
  const int64_t zero = c.IntScalar(zero_point, 0);
  for (int64_t& v : x) v -= zero;
  return x;
}

void ConvInteger(OpCall& c) {
  const std::vector<int64_t> x = ImageWithoutZero(c, 0, 2), w = KernelWithoutZero(c, 1, 3);
  ONNX_EXPECT(c, true, "");
  const Convolved<int64_t> y = Convolve<int64_t>(c, c.In(0).shape(), x, c.In(1).shape(), w);
  ONNX_EXPECT(c, true, "");
  c.Out(0, TensorOf<int64_t>(ElementType::kInt32, y.shape, y.values));
}

// x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias.
void QLinearConv(OpCall& c) {
  const std::vector<int64_t> x = ImageWithoutZero(c, 0, 2), w = KernelWithoutZero(c, 3, 5);
  const double scale_x = c.DoubleScalar(1, 1), scale_y = c.DoubleScalar(6, 1), zero_y = c.DoubleScalar(7, 0);
  const std::vector<double> scale_w = c.Doubles(4);
  ONNX_EXPECT(c, true, "");
  const Convolved<int64_t> sums = Convolve<int64_t>(c, c.In(0).shape(), x, c.In(3).shape(), w);
  ONNX_EXPECT(c, true, "");
  std::vector<double> y(sums.values.begin(), sums.values.end());
  AddBias(c, 8, sums.shape, y);
  ONNX_EXPECT(c, scale_w.size() == 1 || static_cast<int64_t>(scale_w.size()) == sums.shape[1],
              "w_scale is not one for each channel");
  const ElementType to = c.In(7).type();
  const int64_t inner = ElementCount(SpatialOf(sums.shape));
  for (size_t k = 0; k < y.size(); ++k) {
    const double scale = scale_w[scale_w.size() == 1 ? 0 : static_cast<int64_t>(k) / inner % sums.shape[1]];
    y[k] = std::clamp(std::nearbyint(y[k] * (scale_x * scale / scale_y)) + zero_y,
                      static_cast<double>(LowestOf(to)), static_cast<double>(HighestOf(to)));
  }
  c.Out(0, TensorOf<double>(to, sums.shape, y));
}

// The window of a transposed convolution slides over its output and stops once for each element of its input.
SlidingWindow TransposedWindow(OpCall& c, const Shape& stops, const Shape& kernel) {
  SlidingWindow w;
  const size_t rank = stops.size();
  w.stops = stops;
  w.kernel = kernel;
  w.strides = PerAxis(c, "strides", rank, 1, 1);
  w.dilations = PerAxis(c, "dilations", rank, 1, 1);
  const std::vector<int64_t> extra = PerAxis(c, "output_padding", rank, 0, 0),
                             pads = PerAxis(c, "pads", 2 * rank, 0, 0);
  const bool sized = c.HasAttr("output_shape");
  std::vector<int64_t> given = c.IntsAttr("output_shape");
  if (given.size() == rank + 2) given.erase(given.begin(), given.begin() + 2);
  const std::string auto_pad = c.Str("auto_pad", "NOTSET");
  const bool same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
  if (sized && given.size() != rank) c.Fail("output_shape is not one extent for each axis");
  for (size_t d = 0; d < rank && c.ok(); ++d) {
    const int64_t reach = (kernel[d] - 1) * w.dilations[d] + 1,
                  full = (stops[d] - 1) * w.strides[d] + reach + extra[d];
    int64_t low = auto_pad == "VALID" ? 0 : pads[d], high = auto_pad == "VALID" ? 0 : pads[d + rank];
    if (sized || same) {
      const int64_t total = std::max<int64_t>(0, full - (sized ? given[d] : stops[d] * w.strides[d]));
      low = auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
      high = total - low;
    }
    w.low.push_back(low);
    w.high.push_back(0);
    w.image.push_back(sized ? given[d] : full - low - high);
  }
  if (c.ok() && c.Affordable(w.image)) FillWindow(c, w);
  return w;
}

// x [batch, groups * c, ...], kernel [groups * c, m, ...] -> [batch, groups * m, ...].
void ConvTranspose(OpCall& c) {
  const Shape &xs = c.In(0).shape(), &ks = c.In(1).shape();
  const int64_t groups = c.Int("group", 1);
  ONNX_EXPECT(c,
              xs.size() >= 3 && ks.size() == xs.size() && xs[1] == ks[0] && groups > 0 && xs[1] % groups == 0,
              "image and kernel do not fit");
  const std::vector<double> x = c.Doubles(0), kernel = c.Doubles(1);
  const SlidingWindow w = TransposedWindow(c, SpatialOf(xs), SpatialOf(ks));
  ONNX_EXPECT(c, true, "");
  const int64_t in = xs[1] / groups, m = ks[1];
  const Shape shape = ImageShape(xs[0], groups * m, w.image);
  ONNX_EXPECT(
      c,
      c.Affordable(shape) && c.Spend(static_cast<double>(x.size()) * static_cast<double>(m * w.kernel_count)),
      "");
  std::vector<double> y(static_cast<size_t>(ElementCount(shape)));
  for (int64_t bg = 0; bg < xs[0] * groups; ++bg) {
    for (int64_t i = 0; i < in; ++i) {
      const double* from = x.data() + (bg * in + i) * w.stop_count;
      for (int64_t o = 0; o < m; ++o) {
        double* to = y.data() + (bg * m + o) * w.image_count;
        const double* k = kernel.data() + ((bg % groups * in + i) * m + o) * w.kernel_count;
        for (int64_t p = 0; p < w.kernel_count; ++p) {
          for (int64_t s = 0; s < w.stop_count; ++s) {
            const int64_t at = w.at[p * w.stop_count + s];
            if (at >= 0) to[at] += k[p] * from[s];
          }
        }
      }
    }
  }
  AddBias(c, 2, shape, y);
  ONNX_EXPECT(c, true, "");
  c.Out(0, TensorOf<double>(c.In(0).type(), shape, y));
}

// Windows summed back into the image that they were taken from.
void Col2Im(OpCall& c) {
  const Shape image = c.Ints(1), block = c.Ints(2);
  const OnnxTensor& x = c.In(0);
  ONNX_EXPECT(c, image.size() == block.size() && x.rank() == 3 && c.Affordable(image) && c.Affordable(block),
              "image and block do not fit");
  SlidingWindow w;
  w.image = image;
  w.kernel = block;
  w.strides = PerAxis(c, "strides", image.size(), 1, 1);
  w.dilations = PerAxis(c, "dilations", image.size(), 1, 1);
  const std::vector<int64_t> pads = PerAxis(c, "pads", 2 * image.size(), 0, 0);
  ONNX_EXPECT(c, ElementCount(block) > 0, "an empty block");
  for (size_t d = 0; d < image.size(); ++d) {
    w.low.push_back(pads[d]);
    w.high.push_back(pads[d + image.size()]);
    const int64_t room = image[d] + pads[d] + pads[d + image.size()] - ((block[d] - 1) * w.dilations[d] + 1);
    ONNX_EXPECT(c, room >= 0, "the block is larger than the image");
    w.stops.push_back(room / w.strides[d] + 1);
  }
  FillWindow(c, w);
  ONNX_EXPECT(c, x.dim(1) % w.kernel_count == 0 && x.dim(2) == w.stop_count,
              "the columns do not fit image and block");
  const std::vector<double> columns = c.Doubles(0);
  ONNX_EXPECT(c, true, "");
  const int64_t channels = x.dim(1) / w.kernel_count;
  const Shape shape = ImageShape(x.dim(0), channels, image);
  ONNX_EXPECT(c, c.Affordable(shape), "");
  std::vector<double> y(static_cast<size_t>(ElementCount(shape)));
  for (int64_t plane = 0; plane < x.dim(0) * channels; ++plane) {
    for (int64_t k = 0; k < w.kernel_count * w.stop_count; ++k) {
      if (w.at[k] >= 0)
        y[plane * w.image_count + w.at[k]] += columns[plane * w.kernel_count * w.stop_count + k];
    }
  }
  c.Out(0, TensorOf<double>(x.type(), shape, y));
}

// Between the four elements around (h, w) of a plane; outside there are zeros.
double Bilinear(const double* plane, int64_t height, int64_t width, double h, double w) {
  const double h0 = std::floor(h), w0 = std::floor(w);
  if (!(h0 >= -1 && w0 >= -1 && h0 < static_cast<double>(height) && w0 < static_cast<double>(width)))
    return 0;
  double sum = 0;
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      const int64_t y = static_cast<int64_t>(h0) + i, x = static_cast<int64_t>(w0) + j;
      if (y < 0 || x < 0 || y >= height || x >= width) continue;
      sum += plane[y * width + x] * (i == 0 ? 1 - (h - h0) : h - h0) * (j == 0 ? 1 - (w - w0) : w - w0);
    }
  }
  return sum;
}

// x, kernel, offsets [batch, groups * kernel * 2, stops], bias, mask [batch, groups * kernel, stops]; two
// axes.
void DeformConv(OpCall& c) {
  const Shape &xs = c.In(0).shape(), &ks = c.In(1).shape(), &os = c.In(2).shape();
  const int64_t groups = c.Int("group", 1), offset_groups = c.Int("offset_group", 1);
  ONNX_EXPECT(c, xs.size() == 4 && ks.size() == 4 && os.size() == 4 && groups > 0 && offset_groups > 0,
              "takes images of two axes");
  ONNX_EXPECT(c, ks[1] * groups == xs[1] && ks[0] % groups == 0 && xs[1] % offset_groups == 0,
              "image, kernel and groups do not fit");
  const SlidingWindow win = WindowOf(c, SpatialOf(xs), SpatialOf(ks));
  ONNX_EXPECT(c,
              SpatialOf(os) == win.stops && os[0] == xs[0] && os[1] == offset_groups * win.kernel_count * 2,
              "the offsets do not fit");
  const std::vector<double> x = c.Doubles(0), kernel = c.Doubles(1), offsets = c.Doubles(2);
  std::vector<double> mask(static_cast<size_t>(xs[0] * offset_groups * win.kernel_count * win.stop_count), 1);
  if (c.Has(4)) {
    ONNX_EXPECT(c, c.In(4).count() == static_cast<int64_t>(mask.size()), "the mask does not fit");
    mask = c.Doubles(4);
  }
  const Shape shape = ImageShape(xs[0], ks[0], win.stops);
  ONNX_EXPECT(c,
              c.Affordable(shape) && c.Spend(4.0 * static_cast<double>(ElementCount(shape)) *
                                             static_cast<double>(ks[1] * win.kernel_count)),
              "");
  std::vector<double> y(static_cast<size_t>(ElementCount(shape)));
  for (size_t k = 0; k < y.size(); ++k) {
    const int64_t at = static_cast<int64_t>(k), s = at % win.stop_count, o = at / win.stop_count % ks[0],
                  b = at / (win.stop_count * ks[0]);
    const int64_t row = s / win.stops[1], column = s % win.stops[1];
    for (int64_t i = 0; i < ks[1]; ++i) {
      const int64_t channel = o / (ks[0] / groups) * ks[1] + i, og = channel / (xs[1] / offset_groups);
      for (int64_t p = 0; p < win.kernel_count; ++p) {
        const int64_t place = (b * offset_groups + og) * win.kernel_count + p;
        const double dh = offsets[(place * 2) * win.stop_count + s],
                     dw = offsets[(place * 2 + 1) * win.stop_count + s];
        const double h =
            static_cast<double>(row * win.strides[0] - win.low[0] + p / win.kernel[1] * win.dilations[0]) +
            dh;
        const double w =
            static_cast<double>(column * win.strides[1] - win.low[1] + p % win.kernel[1] * win.dilations[1]) +
            dw;
        const double v = Bilinear(x.data() + (b * xs[1] + channel) * win.image_count, xs[2], xs[3], h, w);
        y[k] += v * kernel[(o * ks[1] + i) * win.kernel_count + p] * mask[place * win.stop_count + s];
      }
    }
  }
  AddBias(c, 3, shape, y);
  ONNX_EXPECT(c, true, "");
  c.Out(0, TensorOf<double>(c.In(0).type(), shape, y));
}

constexpr KernelRow kRows[] = {
    {"Conv", Conv},
    {"ConvInteger", ConvInteger},
    {"QLinearConv", QLinearConv},
    {"ConvTranspose", ConvTranspose},
    {"Col2Im", Col2Im},
    {"DeformConv", DeformConv},
};

}  // namespace

absl::Span<const KernelRow> ConvKernels() { return kRows; }

}  // namespace twinforge
