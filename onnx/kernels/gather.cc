// Elements by index, out of a tensor and into one.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "onnx/kernels/kernel.h"
#include "onnx/kernels/places.h"
#include "onnx/tensor.h"

namespace twinforge {
namespace {

// Indices of input i into an axis of `size`, made non-negative; a failure where one lies outside.
std::vector<int64_t> IndicesOf(OpCall& c, int i, int64_t size) {
  std::vector<int64_t> indices = c.Ints(i);
  for (int64_t& at : indices) {
    if (at < -size || at >= size) {
      c.Fail(absl::StrCat("index ", at, " of ", size));
      return {};
    }
    if (at < 0) at += size;
  }
  return indices;
}

void Gather(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  const int64_t axis = c.Axis(c.Int("axis", 0), x.rank());
  ONNX_EXPECT(c, true, "");
  const std::vector<int64_t> indices = IndicesOf(c, 1, x.dim(axis));
  const AxisView view = ViewAt(x.shape(), axis);
  Shape shape(x.shape().begin(), x.shape().begin() + axis);
  shape.insert(shape.end(), c.In(1).shape().begin(), c.In(1).shape().end());
  shape.insert(shape.end(), x.shape().begin() + axis + 1, x.shape().end());
  ONNX_EXPECT(c, c.Affordable(shape), "");
  std::vector<int64_t> from;
  from.reserve(static_cast<size_t>(ElementCount(shape)));
  for (int64_t o = 0; o < view.outer; ++o) {
    for (const int64_t i : indices) {
      for (int64_t n = 0; n < view.inner; ++n) from.push_back((o * view.size + i) * view.inner + n);
    }
  }
  c.Out(0, TakeElements(x, shape, from));
}

// For each place of `indices`' shape, the place in a tensor of `shape` whose index along `axis` is replaced.
std::vector<int64_t> AlongAxis(const Shape& shape, const Shape& of_indices,
                               const std::vector<int64_t>& indices, int64_t axis) {
  const std::vector<int64_t> strides = Strides(shape);
  std::vector<int64_t> at(indices.size()), index(of_indices.size());
  for (size_t k = 0; k < at.size(); ++k) {
    for (size_t d = 0; d < index.size(); ++d)
      at[k] += (static_cast<int64_t>(d) == axis ? indices[k] : index[d]) * strides[d];
    NextPlace(of_indices, index);
  }
  return at;
}

bool FitsBeside(const Shape& indices, const Shape& shape, int64_t axis) {
  if (indices.size() != shape.size()) return false;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (static_cast<int64_t>(d) != axis && indices[d] > shape[d]) return false;
  }
  return true;
}

void GatherElements(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  const int64_t axis = c.Axis(c.Int("axis", 0), x.rank());
  ONNX_EXPECT(c, FitsBeside(c.In(1).shape(), x.shape(), axis), "the indices do not fit the data");
  const std::vector<int64_t> indices = IndicesOf(c, 1, x.dim(axis));
  ONNX_EXPECT(c, true, "");
  c.Out(0, TakeElements(x, c.In(1).shape(), AlongAxis(x.shape(), c.In(1).shape(), indices, axis)));
}

// Indices [..., k] of k leading axes (after `batch` ones): where the slice of each begins, and its size.
struct Slices {
  std::vector<int64_t> begin;
  int64_t size = 1;
};

Slices SlicesOf(OpCall& c, const Shape& shape, const OnnxTensor& indices, int64_t batch) {
  Slices slices;
  const std::vector<int64_t> values = Elements<int64_t>(indices), strides = Strides(shape);
  const int64_t k = indices.rank() > 0 ? indices.dim(indices.rank() - 1) : 0;
  if (indices.rank() <= batch || batch + k > static_cast<int64_t>(shape.size())) {
    c.Fail("the indices have more axes than the data");
    return slices;
  }
  int64_t per_batch = 1;
  for (int64_t d = batch; d + 1 < indices.rank(); ++d) per_batch *= indices.dim(d);
  for (int64_t d = batch + k; d < static_cast<int64_t>(shape.size()); ++d) slices.size *= shape[d];
  int64_t batch_stride = 1;
  for (int64_t d = batch; d < static_cast<int64_t>(shape.size()); ++d) batch_stride *= shape[d];
  const int64_t count =
      k == 0 ? ElementCount(Shape(indices.shape().begin(), indices.shape().end() - 1)) : indices.count() / k;
  for (int64_t n = 0; n < count; ++n) {
    int64_t at = n / std::max<int64_t>(per_batch, 1) * batch_stride;
    for (int64_t d = 0; d < k; ++d) {
      const int64_t size = shape[batch + d], i = values[n * k + d];
      if (i < -size || i >= size) {
        c.Fail(absl::StrCat("index ", i, " of ", size));
        return slices;
      }
      at += (i < 0 ? i + size : i) * strides[batch + d];
    }
    slices.begin.push_back(at);
  }
  return slices;
}

void GatherNd(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  const int64_t batch = c.Int("batch_dims", 0);
  ONNX_EXPECT(c, c.In(1).carrier() == ElementCarrier::kInt64, "the indices are no integers");
  ONNX_EXPECT(c, batch >= 0 && batch < x.rank() && batch < c.In(1).rank(),
              "batch_dims are more than the axes");
  for (int64_t d = 0; d < batch; ++d) ONNX_EXPECT(c, x.dim(d) == c.In(1).dim(d), "the batch axes differ");
  const Slices slices = SlicesOf(c, x.shape(), c.In(1), batch);
  ONNX_EXPECT(c, true, "");
  Shape shape(c.In(1).shape().begin(), c.In(1).shape().end() - 1);
  const int64_t k = c.In(1).dim(c.In(1).rank() - 1);
  shape.insert(shape.end(), x.shape().begin() + batch + k, x.shape().end());
  ONNX_EXPECT(c, c.Affordable(shape), "");
  std::vector<int64_t> from;
  for (const int64_t begin : slices.begin) {
    for (int64_t n = 0; n < slices.size; ++n) from.push_back(begin + n);
  }
  c.Out(0, TakeElements(x, shape, from));
}

// Writes update[k] to data[at[k]], combined with what is there by `reduction`.
void Write(OpCall& c, const OnnxTensor& data, const OnnxTensor& updates, const std::vector<int64_t>& at) {
  const std::string reduction = c.Str("reduction", "none");
  ONNX_EXPECT(c, data.type() == updates.type(), "the updates are of another type");
  ONNX_EXPECT(c, static_cast<int64_t>(at.size()) == updates.count(),
              "the updates are not one for each index");
  if (reduction == "none") {
    std::vector<int64_t> from = Counted(data.count());
    std::vector<int32_t> which(from.size(), 0);
    for (size_t k = 0; k < at.size(); ++k) {
      which[at[k]] = 1;
      from[at[k]] = static_cast<int64_t>(k);
    }
    return c.Out(0, TakeElements({data, updates}, data.shape(), which, from));
  }
  const bool add = reduction == "add", multiply = reduction == "mul", larger = reduction == "max";
  ONNX_EXPECT(c, add || multiply || larger || reduction == "min", "knows no such reduction");
  const bool numbers = WithCarrier(data.type(), [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> y = Elements<T>(data);
    const std::vector<T> u = Elements<T>(updates);
    for (size_t k = 0; k < at.size(); ++k) {
      T& v = y[at[k]];
      v = add ? v + u[k] : multiply ? v * u[k] : larger ? std::max(v, u[k]) : std::min(v, u[k]);
    }
    c.Out(0, TensorOf<T>(data.type(), data.shape(), y));
  });
  ONNX_EXPECT(c, numbers, "reduces numbers");
}

void ScatterElements(OpCall& c) {
  const OnnxTensor& data = c.In(0);
  const int64_t axis = c.Axis(c.Int("axis", 0), data.rank());
  ONNX_EXPECT(c, FitsBeside(c.In(1).shape(), data.shape(), axis) && c.In(1).shape() == c.In(2).shape(),
              "indices and updates do not fit the data");
  const std::vector<int64_t> indices = IndicesOf(c, 1, data.dim(axis));
  ONNX_EXPECT(c, true, "");
  Write(c, data, c.In(2), AlongAxis(data.shape(), c.In(1).shape(), indices, axis));
}

void ScatterNd(OpCall& c) {
  const OnnxTensor& data = c.In(0);
  ONNX_EXPECT(c, c.In(1).carrier() == ElementCarrier::kInt64 && c.In(1).rank() >= 1,
              "the indices are no integers");
  const Slices slices = SlicesOf(c, data.shape(), c.In(1), 0);
  ONNX_EXPECT(c, true, "");
  std::vector<int64_t> at;
  for (const int64_t begin : slices.begin) {
    for (int64_t n = 0; n < slices.size; ++n) at.push_back(begin + n);
  }
  Write(c, data, c.In(2), at);
}

void TensorScatter(OpCall& c) {
  const OnnxTensor &cache = c.In(0), &update = c.In(1);
  const int64_t axis = c.Axis(c.Int("axis", -2), cache.rank());
  const std::string mode = c.Str("mode", "linear");
  ONNX_EXPECT(c, axis > 0 && update.rank() == cache.rank() && update.type() == cache.type(),
              "cache and update differ in rank or type");
  Shape beside = update.shape();
  beside[axis] = cache.dim(axis);
  ONNX_EXPECT(c, beside == cache.shape() && update.dim(axis) <= cache.dim(axis),
              "the update does not fit the cache");
  std::vector<int64_t> begin(static_cast<size_t>(cache.dim(0)), 0);
  if (c.Has(2)) begin = c.Ints(2);
  ONNX_EXPECT(c, static_cast<int64_t>(begin.size()) == cache.dim(0),
              "write_indices are not one for each of the batch");
  const int64_t length = cache.dim(axis);
  std::vector<int64_t> indices(static_cast<size_t>(update.count())), index(update.shape().size());
  for (int64_t& at : indices) {
    const int64_t start = begin[index[0]];
    ONNX_EXPECT(c, start >= 0 && start <= INT32_MAX, "a write index is negative");
    at = start + index[axis];
    if (mode == "circular") at %= length;
    ONNX_EXPECT(c, at < length, "writes beyond the cache");
    NextPlace(update.shape(), index);
  }
  std::vector<int64_t> from = Counted(cache.count());
  std::vector<int32_t> which(from.size(), 0);
  const std::vector<int64_t> places = AlongAxis(cache.shape(), update.shape(), indices, axis);
  for (size_t k = 0; k < places.size(); ++k) {
    which[places[k]] = 1;
    from[places[k]] = static_cast<int64_t>(k);
  }
  c.Out(0, TakeElements({cache, update}, cache.shape(), which, from));
}

// depth, then values [off, on]; an index outside of [-depth, depth) is a row of off.
void OneHot(OpCall& c) {
  const std::vector<double> indices = c.Doubles(0), depths = c.Doubles(1);
  ONNX_EXPECT(c, depths.size() == 1 && depths[0] >= 1 && depths[0] < 1e9, "its depth is no positive number");
  ONNX_EXPECT(c, c.In(2).count() == 2, "its values are not two");
  const int64_t depth = static_cast<int64_t>(depths[0]), rank = c.In(0).rank() + 1;
  const int64_t axis = c.Axis(c.Int("axis", -1), rank);
  Shape shape = c.In(0).shape();
  shape.insert(shape.begin() + axis, depth);
  ONNX_EXPECT(c, c.Affordable(shape), "");
  const AxisView view = ViewAt(shape, axis);
  std::vector<int64_t> from(static_cast<size_t>(ElementCount(shape)), 0);
  for (size_t k = 0; k < indices.size(); ++k) {
    const double i = indices[k] < 0 ? indices[k] + static_cast<double>(depth) : indices[k];
    if (!(i >= 0 && i < static_cast<double>(depth))) continue;
    const int64_t o = static_cast<int64_t>(k) / view.inner, n = static_cast<int64_t>(k) % view.inner;
    from[(o * depth + static_cast<int64_t>(i)) * view.inner + n] = 1;
  }
  c.Out(0, TakeElements(c.In(2), shape, from));
}

// ai.onnx.ml: columns of the last axis.
void ArrayFeatureExtractor(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  ONNX_EXPECT(c, x.rank() > 0, "takes no scalar");
  const int64_t width = x.dim(x.rank() - 1);
  const std::vector<int64_t> columns = IndicesOf(c, 1, width);
  ONNX_EXPECT(c, true, "");
  Shape shape = x.rank() == 1 ? Shape{1, 0} : x.shape();
  shape.back() = static_cast<int64_t>(columns.size());
  std::vector<int64_t> from;
  for (int64_t row = 0; row < x.count() / std::max<int64_t>(width, 1); ++row) {
    for (const int64_t column : columns) from.push_back(row * width + column);
  }
  ONNX_EXPECT(c, ElementCount(shape) == static_cast<int64_t>(from.size()), "takes rows of features");
  c.Out(0, TakeElements(x, shape, from));
}

constexpr KernelRow kRows[] = {
    {"Gather", Gather},
    {"GatherElements", GatherElements},
    {"GatherND", GatherNd},
    {"Scatter", ScatterElements},
    {"ScatterElements", ScatterElements},
    {"ScatterND", ScatterNd},
    {"TensorScatter", TensorScatter},
    {"OneHot", OneHot},
    {"ArrayFeatureExtractor", ArrayFeatureExtractor, false, "ai.onnx.ml"},
};

}  // namespace

absl::Span<const KernelRow> GatherKernels() { return kRows; }

}  // namespace twinforge
