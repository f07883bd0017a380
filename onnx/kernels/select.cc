// Which elements, and where they are: largest, unequal, not zero.
#include <algorithm>
#include <map>
#include <numeric>

#include "onnx/kernels/kernel.h"
#include "onnx/kernels/places.h"
#include "onnx/tensor.h"

namespace twinforge {
namespace {

// ArgMax and ArgMin. Of equals the first, or with select_last_index the last.
template <typename Better>
void Arg(OpCall& c, Better&& better) {
  const OnnxTensor& x = c.In(0);
  const int64_t axis = c.Axis(c.Int("axis", 0), x.rank());
  const bool last = c.Int("select_last_index", 0) != 0, keep = c.Int("keepdims", 1) != 0;
  ONNX_EXPECT(c, x.dim(axis) > 0, "its axis has no element");
  const AxisView view = ViewAt(x.shape(), axis);
  std::vector<int64_t> y;
  const bool numbers = WithCarrier(x.type(), [&](auto zero) {
    const auto values = Elements<decltype(zero)>(x);
    for (int64_t o = 0; o < view.outer; ++o) {
      for (int64_t n = 0; n < view.inner; ++n) {
        const auto at = [&](int64_t i) { return values[(o * view.size + i) * view.inner + n]; };
        int64_t best = 0;
        for (int64_t i = 1; i < view.size; ++i) {
          if (better(at(i), at(best)) || (last && at(i) == at(best))) best = i;
        }
        y.push_back(best);
      }
    }
  });
  ONNX_EXPECT(c, numbers, "takes numbers");
  Shape shape = x.shape();
  shape[axis] = 1;
  if (!keep) shape.erase(shape.begin() + axis);
  c.Out(0, TensorOf<int64_t>(ElementType::kInt64, shape, y));
}
void ArgMax(OpCall& c) {
  Arg(c, [](auto a, auto b) { return a > b; });
}
void ArgMin(OpCall& c) {
  Arg(c, [](auto a, auto b) { return a < b; });
}

// Along one axis the k largest or smallest, sorted; of equals the lower index first.
void TopK(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  const int64_t axis = c.Axis(c.Int("axis", -1), x.rank());
  const int64_t k = c.opset() < 10 ? c.Int("k", -1) : c.Has(1) ? c.IntScalar(1, -1) : -1;
  ONNX_EXPECT(c, k >= 0 && k <= x.dim(axis), "k is not within the axis");
  const bool largest = c.Int("largest", 1) != 0;
  const AxisView view = ViewAt(x.shape(), axis);
  Shape shape = x.shape();
  shape[axis] = k;
  std::vector<int64_t> from(static_cast<size_t>(ElementCount(shape))), indices(from.size());
  const bool numbers = WithCarrier(x.type(), [&](auto zero) {
    const auto values = Elements<decltype(zero)>(x);
    for (int64_t o = 0; o < view.outer; ++o) {
      for (int64_t n = 0; n < view.inner; ++n) {
        const auto place = [&](int64_t i) { return (o * view.size + i) * view.inner + n; };
        std::vector<int64_t> order = Counted(view.size);
        // NaN is larger than every number, so that the order is one.
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
          const auto u = values[place(a)], v = values[place(b)];
          if (u != u || v != v) return largest ? u != u && v == v : u == u && v != v;
          return largest ? u > v : u < v;
        });
        for (int64_t i = 0; i < k; ++i) {
          const int64_t out = (o * k + i) * view.inner + n;
          indices[out] = order[i];
          from[out] = place(order[i]);
        }
      }
    }
  });
  ONNX_EXPECT(c, numbers, "takes numbers");
  c.Out(0, TakeElements(x, shape, from));
  c.Out(1, TensorOf<int64_t>(ElementType::kInt64, shape, indices));
}

void NonZero(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  ONNX_EXPECT(c, !x.is_string(), "takes numbers");
  const std::vector<double> values = c.Doubles(0);
  ONNX_EXPECT(c, true, "");
  const Shape shape = x.rank() == 0 ? Shape{1} : x.shape();
  const int64_t rank = static_cast<int64_t>(shape.size());
  std::vector<std::vector<int64_t>> found(static_cast<size_t>(rank));
  std::vector<int64_t> index(shape.size());
  for (const double v : values) {
    if (v != 0) {
      for (int64_t d = 0; d < rank; ++d) found[d].push_back(index[d]);
    }
    NextPlace(shape, index);
  }
  std::vector<int64_t> y;
  for (const std::vector<int64_t>& row : found) y.insert(y.end(), row.begin(), row.end());
  c.Out(0, TensorOf<int64_t>(ElementType::kInt64, {rank, static_cast<int64_t>(found[0].size())}, y));
}

// Slices along an axis as numbers that compare as they do: equal slices get equal ranks.
std::vector<int64_t> Ranks(const OnnxTensor& x, const AxisView& view) {
  std::vector<int64_t> order = Counted(x.count()), rank(order.size());
  const auto fill = [&](auto less) {
    std::stable_sort(order.begin(), order.end(), less);
    int64_t r = 0;
    for (size_t k = 0; k < order.size(); ++k) {
      if (k > 0 && less(order[k - 1], order[k])) ++r;
      rank[order[k]] = r;
    }
  };
  if (x.is_string()) {
    fill([&](int64_t a, int64_t b) { return x.strings()[a] < x.strings()[b]; });
  }
  WithCarrier(x.type(), [&](auto zero) {
    const auto values = Elements<decltype(zero)>(x);
    fill([&](int64_t a, int64_t b) { return values[a] < values[b]; });
  });
  return rank;
}

void Unique(OpCall& c) {
  const bool flat = !c.HasAttr("axis"), sorted = c.Int("sorted", 1) != 0;
  const OnnxTensor x = flat ? c.In(0).WithShape({c.In(0).count()}) : c.In(0);
  const int64_t axis = c.Axis(c.Int("axis", 0), x.rank());
  ONNX_EXPECT(c, x.carrier() != ElementCarrier::kComplex, "takes no complex numbers");
  const AxisView view = ViewAt(x.shape(), axis);
  const std::vector<int64_t> rank = Ranks(x, view);
  std::map<std::vector<int64_t>, std::vector<int64_t>> slices;  // a slice -> where it occurs
  for (int64_t i = 0; i < view.size; ++i) {
    std::vector<int64_t> slice;
    for (int64_t o = 0; o < view.outer; ++o) {
      for (int64_t n = 0; n < view.inner; ++n) slice.push_back(rank[(o * view.size + i) * view.inner + n]);
    }
    slices[slice].push_back(i);
  }
  std::vector<const std::vector<int64_t>*> found;
  for (const auto& [slice, places] : slices) found.push_back(&places);
  if (!sorted)
    std::sort(found.begin(), found.end(), [](const auto* a, const auto* b) { return (*a)[0] < (*b)[0]; });
  std::vector<int64_t> first, counts, inverse(static_cast<size_t>(view.size));
  for (const auto* places : found) {
    for (const int64_t i : *places) inverse[i] = static_cast<int64_t>(first.size());
    first.push_back((*places)[0]);
    counts.push_back(static_cast<int64_t>(places->size()));
  }
  Shape shape = x.shape();
  shape[axis] = static_cast<int64_t>(first.size());
  std::vector<int64_t> from;
  for (int64_t o = 0; o < view.outer; ++o) {
    for (const int64_t i : first) {
      for (int64_t n = 0; n < view.inner; ++n) from.push_back((o * view.size + i) * view.inner + n);
    }
  }
  c.Out(0, TakeElements(x, shape, from));
  c.Out(1, Int64Tensor(first));
  c.Out(2, Int64Tensor(inverse));
  c.Out(3, Int64Tensor(counts));
}

constexpr KernelRow kRows[] = {
    {"ArgMax", ArgMax}, {"ArgMin", ArgMin}, {"TopK", TopK}, {"NonZero", NonZero}, {"Unique", Unique},
};

}  // namespace

absl::Span<const KernelRow> SelectKernels() { return kRows; }

}  // namespace twinforge
