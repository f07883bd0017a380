// Images sampled at given points, and boxes in them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "onnx/kernels/kernel.h"
#include "onnx/kernels/places.h"
#include "onnx/tensor.h"

namespace twinforge {
namespace {

// Folds x back at both borders until it lies between them.
double Reflected(double x, double low, double high) {
  const double span = high - low;
  if (span <= 0) return low;
  if (x >= low && x <= high) return x;
  const double distance = x < low ? low - x : x - high;
  const double folds = std::floor(distance / span), rest = distance - folds * span;
  const bool even = std::fmod(folds, 2) == 0;
  return (x < low) == even ? low + rest : high - rest;
}

struct GridRule {
  bool nearest = false, cubic = false, align = false, reflect = false, border = false;
};

struct GridAxis {
  int64_t size;
  double low, high;  // its borders
};

// The element at a whole place of one axis, or -1 for zero.
int64_t PlaceOf(const GridRule& rule, const GridAxis& a, int64_t i) {
  if (i >= 0 && i < a.size) return i;
  if (rule.border) return std::clamp<int64_t>(i, 0, a.size - 1);
  if (!rule.reflect) return -1;
  return std::clamp<int64_t>(static_cast<int64_t>(Reflected(static_cast<double>(i), a.low, a.high)), 0,
                             a.size - 1);
}

// Between the elements around x, axis by axis from the last to the first.
double Interpolated(const GridRule& rule, const std::vector<GridAxis>& axes, const double* data,
                    int64_t stride, size_t d, const std::vector<double>& x) {
  if (d == axes.size()) return *data;
  const int64_t inner = stride / axes[d].size;
  const double low = std::floor(x[d]), t = x[d] - low;
  const int64_t first = rule.nearest ? 0 : rule.cubic ? -1 : 0, last = rule.nearest ? 0 : rule.cubic ? 2 : 1;
  double sum = 0;
  for (int64_t i = first; i <= last; ++i) {
    const double distance = std::fabs(static_cast<double>(i) - t);
    double weight = rule.nearest ? 1 : 1 - distance;
    if (rule.cubic) {
      constexpr double a = -0.75;
      weight = distance <= 1 ? ((a + 2) * distance - (a + 3)) * distance * distance + 1
                             : ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a;
    }
    const int64_t at = PlaceOf(rule, axes[d], static_cast<int64_t>(low) + i);
    if (at >= 0 && weight != 0) sum += weight * Interpolated(rule, axes, data + at * inner, inner, d + 1, x);
  }
  return sum;
}

// x [n, c, spatial...], grid [n, out..., rank] with the last axis first, each in [-1, 1] from border to
// border.
void GridSample(OpCall& c) {
  const OnnxTensor &image = c.In(0), &grid = c.In(1);
  const int64_t rank = image.rank() - 2;
  ONNX_EXPECT(
      c, rank >= 1 && grid.rank() == rank + 2 && grid.shape().back() == rank && grid.dim(0) == image.dim(0),
      "grid and image do not fit");
  const std::string mode = c.Str("mode", "linear"), padding = c.Str("padding_mode", "zeros");
  GridRule rule;
  rule.nearest = mode == "nearest";
  rule.cubic = mode == "cubic" || mode == "bicubic";
  rule.align = c.Int("align_corners", 0) != 0;
  rule.reflect = padding == "reflection";
  rule.border = padding == "border";
  ONNX_EXPECT(c, rule.nearest || rule.cubic || mode == "linear" || mode == "bilinear", "knows no such mode");
  ONNX_EXPECT(c, rule.reflect || rule.border || padding == "zeros", "knows no such padding_mode");
  std::vector<GridAxis> axes;
  int64_t plane = 1, points = 1;
  Shape shape = {image.dim(0), image.dim(1)};
  for (int64_t d = 0; d < rank; ++d) {
    const double size = static_cast<double>(image.dim(d + 2));
    ONNX_EXPECT(c, size > 0, "an axis without elements");
    axes.push_back({image.dim(d + 2), rule.align ? 0 : -0.5, rule.align ? size - 1 : size - 0.5});
    plane *= image.dim(d + 2);
    points *= grid.dim(d + 1);
    shape.push_back(grid.dim(d + 1));
  }
  const std::vector<double> x = c.Doubles(0), g = c.Doubles(1);
  ONNX_EXPECT(c,
              c.Affordable(shape) && c.Spend(static_cast<double>(ElementCount(shape)) *
                                             std::pow(rule.cubic ? 4.0 : 2.0, static_cast<double>(rank))),
              "");
  std::vector<double> y(static_cast<size_t>(ElementCount(shape))), at(static_cast<size_t>(rank));
  for (size_t k = 0; k < y.size(); ++k) {
    const int64_t p = static_cast<int64_t>(k) % points, channel = static_cast<int64_t>(k) / points,
                  n = channel / image.dim(1);
    bool sound = true;
    for (int64_t d = 0; d < rank; ++d) {
      const double unit = g[(n * points + p) * rank + rank - 1 - d], size = static_cast<double>(axes[d].size);
      double v = RoundedTo(ElementType::kFloat,
                           rule.align ? (unit + 1) / 2 * (size - 1) : ((unit + 1) * size - 1) / 2);
      if (rule.nearest) v = std::nearbyint(v);
      if (v < axes[d].low || v > axes[d].high) {
        if (rule.border) v = std::clamp(v, 0.0, size - 1);
        if (rule.reflect) v = Reflected(v, axes[d].low, axes[d].high);
      }
      // Nowhere near the image: zeros, before a number too large for an integer is made one.
      sound = sound && std::fabs(v) < 1e9;
      at[d] = rule.nearest ? std::trunc(v) : v;
    }
    if (sound) y[k] = Interpolated(rule, axes, x.data() + channel * plane, plane, 0, at);
  }
  c.Out(0, TensorOf<double>(image.type(), shape, y));
}

// theta [n, rank, rank + 1] and a size to a grid for GridSample.
void AffineGrid(OpCall& c) {
  const Shape size = c.Ints(1);
  const int64_t rank = static_cast<int64_t>(size.size()) - 2;
  ONNX_EXPECT(
      c,
      (rank == 2 || rank == 3) && c.Affordable(size) && c.In(0).shape() == Shape({size[0], rank, rank + 1}),
      "theta and size do not fit");
  const std::vector<double> theta = c.Doubles(0);
  const bool align = c.Int("align_corners", 0) != 0;
  Shape shape = {size[0]};
  shape.insert(shape.end(), size.begin() + 2, size.end());
  const Shape points = shape;
  shape.push_back(rank);
  ONNX_EXPECT(c, c.Affordable(shape), "");
  std::vector<double> y;
  std::vector<int64_t> index(points.size());
  if (ElementCount(points) == 0) return c.Out(0, TensorOf<double>(c.In(0).type(), shape, y));
  do {
    std::vector<double> homogeneous;
    for (int64_t d = rank; d >= 1; --d) {
      const double extent = static_cast<double>(points[d]), i = static_cast<double>(index[d]);
      homogeneous.push_back(align ? (extent == 1 ? -1 : 2 * i / (extent - 1) - 1) : (2 * i + 1) / extent - 1);
    }
    homogeneous.push_back(1);
    for (int64_t row = 0; row < rank; ++row) {
      double sum = 0;
      for (int64_t k = 0; k <= rank; ++k)
        sum += theta[(index[0] * rank + row) * (rank + 1) + k] * homogeneous[k];
      y.push_back(sum);
    }
  } while (NextPlace(points, index));
  c.Out(0, TensorOf<double>(c.In(0).type(), shape, y));
}

// One sample of a box: four places of a plane and their weights.
struct BoxSample {
  int64_t at[4] = {0, 0, 0, 0};
  double weight[4] = {0, 0, 0, 0};
};

BoxSample SampleAt(double y, double x, int64_t height, int64_t width) {
  BoxSample s;
  if (!(y >= -1 && x >= -1 && y <= static_cast<double>(height) && x <= static_cast<double>(width))) return s;
  y = std::max(y, 0.0);
  x = std::max(x, 0.0);
  const int64_t y0 = std::min(static_cast<int64_t>(y), height - 1),
                x0 = std::min(static_cast<int64_t>(x), width - 1);
  const int64_t y1 = std::min(y0 + 1, height - 1), x1 = std::min(x0 + 1, width - 1);
  const double v = y0 == height - 1 ? 0 : y - static_cast<double>(y0),
               u = x0 == width - 1 ? 0 : x - static_cast<double>(x0);
  const int64_t at[4] = {y0 * width + x0, y0 * width + x1, y1 * width + x0, y1 * width + x1};
  const double weight[4] = {(1 - v) * (1 - u), (1 - v) * u, v * (1 - u), v * u};
  std::copy(at, at + 4, s.at);
  std::copy(weight, weight + 4, s.weight);
  return s;
}

// x [n, c, h, w], boxes [boxes, 4] as x1, y1, x2, y2, the image of each box.
void RoiAlign(OpCall& c) {
  const OnnxTensor& image = c.In(0);
  const int64_t out_h = c.Int("output_height", 1), out_w = c.Int("output_width", 1),
                ratio = c.Int("sampling_ratio", 0);
  const double scale = c.Float("spatial_scale", 1);
  const bool half = c.Str("coordinate_transformation_mode",
                          c.opset() < 16 ? "output_half_pixel" : "half_pixel") == "half_pixel";
  const bool average = c.Str("mode", "avg") == "avg";
  const std::vector<double> x = c.Doubles(0), boxes = c.Doubles(1);
  const std::vector<int64_t> which = c.Ints(2);
  ONNX_EXPECT(c,
              image.rank() == 4 && c.In(1).rank() == 2 && c.In(1).dim(1) == 4 &&
                  static_cast<int64_t>(which.size()) == c.In(1).dim(0),
              "image, boxes and indices do not fit");
  const int64_t channels = image.dim(1), height = image.dim(2), width = image.dim(3);
  const Shape shape = {c.In(1).dim(0), channels, out_h, out_w};
  ONNX_EXPECT(c, height > 0 && width > 0 && c.Affordable(shape) && ratio >= 0, "has nothing to sample");
  std::vector<double> y(static_cast<size_t>(ElementCount(shape)));
  for (int64_t r = 0; r < shape[0]; ++r) {
    ONNX_EXPECT(c, which[r] >= 0 && which[r] < image.dim(0), "a box is of no image");
    const double offset = half ? 0.5 : 0, left = boxes[r * 4] * scale - offset,
                 top = boxes[r * 4 + 1] * scale - offset;
    double box_w = boxes[r * 4 + 2] * scale - offset - left, box_h = boxes[r * 4 + 3] * scale - offset - top;
    if (!half) box_w = std::max(box_w, 1.0), box_h = std::max(box_h, 1.0);
    const double bin_h = box_h / static_cast<double>(out_h), bin_w = box_w / static_cast<double>(out_w);
    ONNX_EXPECT(c, std::fabs(bin_h) < 1e4 && std::fabs(bin_w) < 1e4, "a box is too large");
    const int64_t grid_h = ratio > 0 ? ratio : std::max<int64_t>(0, static_cast<int64_t>(std::ceil(bin_h)));
    const int64_t grid_w = ratio > 0 ? ratio : std::max<int64_t>(0, static_cast<int64_t>(std::ceil(bin_w)));
    ONNX_EXPECT(
        c,
        c.Spend(4.0 * static_cast<double>(grid_h * grid_w) * static_cast<double>(channels * out_h * out_w)),
        "");
    for (int64_t p = 0; p < out_h * out_w; ++p) {
      for (int64_t channel = 0; channel < channels; ++channel) {
        const double* plane = x.data() + (which[r] * channels + channel) * height * width;
        double sum = 0, most = -std::numeric_limits<double>::infinity();
        for (int64_t s = 0; s < grid_h * grid_w; ++s) {
          const double at_y = top + (static_cast<double>(p / out_w) +
                                     (static_cast<double>(s / grid_w) + 0.5) / static_cast<double>(grid_h)) *
                                        bin_h;
          const double at_x = left + (static_cast<double>(p % out_w) +
                                      (static_cast<double>(s % grid_w) + 0.5) / static_cast<double>(grid_w)) *
                                         bin_w;
          const BoxSample sample = SampleAt(at_y, at_x, height, width);
          for (int k = 0; k < 4; ++k) {
            sum += sample.weight[k] * plane[sample.at[k]];
            most = std::max(most, sample.weight[k] * plane[sample.at[k]]);
          }
        }
        const double count = static_cast<double>(std::max<int64_t>(grid_h * grid_w, 1));
        y[(r * channels + channel) * out_h * out_w + p] = average                ? sum / count
                                                          : grid_h * grid_w == 0 ? 0
                                                                                 : most;
      }
    }
  }
  c.Out(0, TensorOf<double>(image.type(), shape, y));
}

struct Corners {
  double y1, x1, y2, x2;
};

Corners CornersOf(const double* box, bool centred) {
  if (centred) return {box[1] - box[3] / 2, box[0] - box[2] / 2, box[1] + box[3] / 2, box[0] + box[2] / 2};
  return {std::min(box[0], box[2]), std::min(box[1], box[3]), std::max(box[0], box[2]),
          std::max(box[1], box[3])};
}

double Overlap(const Corners& a, const Corners& b) {
  const double h = std::max(0.0, std::min(a.y2, b.y2) - std::max(a.y1, b.y1)),
               w = std::max(0.0, std::min(a.x2, b.x2) - std::max(a.x1, b.x1));
  const double both = (a.y2 - a.y1) * (a.x2 - a.x1) + (b.y2 - b.y1) * (b.x2 - b.x1) - h * w;
  return both <= 0 ? 0 : h * w / both;
}

// Of each image and class the best boxes, none of which overlaps a better one too much.
void NonMaxSuppression(OpCall& c) {
  const OnnxTensor &in_boxes = c.In(0), &in_scores = c.In(1);
  ONNX_EXPECT(c,
              in_boxes.rank() == 3 && in_boxes.dim(2) == 4 && in_scores.rank() == 3 &&
                  in_scores.dim(0) == in_boxes.dim(0) && in_scores.dim(2) == in_boxes.dim(1),
              "boxes and scores do not fit");
  const std::vector<double> boxes = c.Doubles(0), scores = c.Doubles(1);
  const int64_t most = c.IntScalar(2, 0), count = in_boxes.dim(1);
  const double overlap = c.DoubleScalar(3, 0),
               least = c.DoubleScalar(4, -std::numeric_limits<double>::infinity());
  const bool centred = c.Int("center_point_box", 0) != 0;
  ONNX_EXPECT(c, true, "");
  std::vector<int64_t> y;
  for (int64_t line = 0; line < in_scores.dim(0) * in_scores.dim(1); ++line) {
    const int64_t n = line / in_scores.dim(1);
    std::vector<int64_t> order, kept;
    for (int64_t i = 0; i < count; ++i) {
      if (scores[line * count + i] > least) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return scores[line * count + a] > scores[line * count + b];
    });
    for (const int64_t i : order) {
      if (static_cast<int64_t>(kept.size()) >= most) break;
      const Corners box = CornersOf(boxes.data() + (n * count + i) * 4, centred);
      const bool free = std::none_of(kept.begin(), kept.end(), [&](int64_t k) {
        return Overlap(CornersOf(boxes.data() + (n * count + k) * 4, centred), box) > overlap;
      });
      if (!c.Spend(static_cast<double>(kept.size()))) return;
      if (!free) continue;
      kept.push_back(i);
      y.insert(y.end(), {n, line % in_scores.dim(1), i});
    }
  }
  c.Out(0, TensorOf<int64_t>(ElementType::kInt64, {static_cast<int64_t>(y.size()) / 3, 3}, y));
}

constexpr KernelRow kRows[] = {
    {"GridSample", GridSample},
    {"AffineGrid", AffineGrid},
    {"RoiAlign", RoiAlign},
    {"NonMaxSuppression", NonMaxSuppression},
};

}  // namespace

absl::Span<const KernelRow> ImageKernels() { return kRows; }

}  // namespace twinforge
