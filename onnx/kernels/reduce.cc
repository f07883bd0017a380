// Many elements to one: reductions, and running sums and products.
#include <algorithm>
#include <cmath>
#include <limits>

#include "onnx/kernels/kernel.h"
#include "onnx/kernels/places.h"
#include "onnx/tensor.h"

namespace twinforge {
namespace {

// Which places of the input go into which place of the result.
struct Groups {
  Shape shape;                 // of the result, with or without the reduced axes
  std::vector<int64_t> group;  // of each input element
  int64_t size = 1;            // elements of a group
  bool identity = false;
};

// Axes are an input since operator set 18 (ReduceSum: 13), an attribute before.
Groups GroupsOf(OpCall& c, int64_t axes_input_since) {
  Groups groups;
  const OnnxTensor& x = c.In(0);
  const bool as_input = c.opset() >= axes_input_since;
  std::vector<int64_t> axes = as_input ? (c.Has(1) ? c.Ints(1) : std::vector<int64_t>()) : c.IntsAttr("axes");
  if (axes.empty() && c.Int("noop_with_empty_axes", 0) != 0) groups.identity = true;
  if (axes.empty() && !groups.identity) axes = Counted(x.rank());
  axes = NormalAxes(c, axes, x.rank());
  if (!c.ok()) return groups;
  const bool keep = c.Int("keepdims", 1) != 0;
  Shape kept = x.shape();
  for (const int64_t axis : axes) {
    groups.size *= kept[axis];
    kept[axis] = 1;
  }
  std::vector<int64_t> strides = Strides(kept);
  for (const int64_t axis : axes) strides[axis] = 0;
  groups.group = StridedPlaces(x.shape(), strides, 0);
  for (int64_t d = 0; d < x.rank(); ++d) {
    if (keep || !std::binary_search(axes.begin(), axes.end(), d)) groups.shape.push_back(kept[d]);
  }
  return groups;
}

// Sums are taken in double or in 64-bit integers, and rounded once.
template <typename Begin, typename Step, typename End>
void Reduce(OpCall& c, int64_t since, Begin&& begin, Step&& step, End&& end) {
  const Groups groups = GroupsOf(c, since);
  ONNX_EXPECT(c, true, "");
  const bool numbers = WithCarrier(c.In(0).type(), [&](auto zero) {
    using T = decltype(zero);
    const std::vector<T> x = Elements<T>(c.In(0));
    std::vector<T> y(static_cast<size_t>(ElementCount(groups.shape)), begin(T{}));
    for (size_t k = 0; k < x.size(); ++k) y[groups.group[k]] = step(y[groups.group[k]], x[k]);
    for (T& v : y) v = end(v, groups.size);
    c.Out(0, TensorOf<T>(c.In(0).type(), groups.shape, y));
  });
  ONNX_EXPECT(c, numbers, "takes numbers");
}

constexpr auto kZero = [](auto t) { return decltype(t){0}; };
constexpr auto kSame = [](auto v, int64_t) { return v; };
constexpr auto kAdd = [](auto a, auto x) { return a + x; };

template <typename T>
T LogOf(T v) {
  return static_cast<T>(std::log(static_cast<double>(v)));
}
template <typename T>
T SqrtOf(T v) {
  return static_cast<T>(std::sqrt(static_cast<double>(v)));
}

void ReduceSum(OpCall& c) { Reduce(c, 13, kZero, kAdd, kSame); }
void ReduceMean(OpCall& c) {
  Reduce(c, 18, kZero, kAdd, [](auto v, int64_t n) {
    if constexpr (std::is_same_v<decltype(v), double>) return v / static_cast<double>(n);
    return n == 0 ? v : static_cast<decltype(v)>(v / static_cast<decltype(v)>(n));
  });
}
void ReduceProd(OpCall& c) {
  Reduce(
      c, 18, [](auto t) { return decltype(t){1}; }, [](auto a, auto x) { return a * x; }, kSame);
}
void ReduceL1(OpCall& c) {
  Reduce(
      c, 18, kZero, [](auto a, auto x) { return x < decltype(x){0} ? a - x : a + x; }, kSame);
}
void ReduceL2(OpCall& c) {
  Reduce(
      c, 18, kZero, [](auto a, auto x) { return a + x * x; }, [](auto v, int64_t) { return SqrtOf(v); });
}
void ReduceSumSquare(OpCall& c) {
  Reduce(
      c, 18, kZero, [](auto a, auto x) { return a + x * x; }, kSame);
}
void ReduceLogSum(OpCall& c) {
  Reduce(c, 18, kZero, kAdd, [](auto v, int64_t) { return LogOf(v); });
}

// log(sum(exp(x))) with the largest taken out, so that nothing overflows.
void ReduceLogSumExp(OpCall& c) {
  const Groups groups = GroupsOf(c, 18);
  const std::vector<double> x = c.Doubles(0);
  ONNX_EXPECT(c, true, "");
  std::vector<double> most(static_cast<size_t>(ElementCount(groups.shape)),
                           -std::numeric_limits<double>::infinity());
  std::vector<double> sum(most.size(), 0);
  for (size_t k = 0; k < x.size(); ++k) most[groups.group[k]] = std::fmax(most[groups.group[k]], x[k]);
  for (size_t k = 0; k < x.size(); ++k) {
    const double m = most[groups.group[k]];
    sum[groups.group[k]] += std::isinf(m) ? (x[k] == m && m > 0 ? 1 : std::exp(x[k])) : std::exp(x[k] - m);
  }
  for (size_t k = 0; k < sum.size(); ++k)
    sum[k] = (std::isinf(most[k]) && most[k] < 0 ? 0 : most[k]) + std::log(sum[k]);
  c.Out(0, TensorOf<double>(c.In(0).type(), groups.shape, sum));
}

// Of nothing: the least (or largest) value of the type.
template <typename T>
T Extreme(ElementType type, bool low) {
  if constexpr (std::is_same_v<T, double>) {
    return low ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  } else if constexpr (std::is_same_v<T, uint64_t>) {
    return low ? 0 : UINT64_MAX;
  } else {
    return low ? LowestOf(type) : HighestOf(type);
  }
}

void ReduceMax(OpCall& c) {
  const ElementType type = c.In(0).type();
  Reduce(
      c, 18, [=](auto t) { return Extreme<decltype(t)>(type, true); },
      [](auto a, auto x) { return x > a || x != x ? x : a; }, kSame);
}
void ReduceMin(OpCall& c) {
  const ElementType type = c.In(0).type();
  Reduce(
      c, 18, [=](auto t) { return Extreme<decltype(t)>(type, false); },
      [](auto a, auto x) { return x < a || x != x ? x : a; }, kSame);
}

// Running sums and products along one axis.
template <typename Step>
void Accumulate(OpCall& c, int start, Step&& step) {
  const OnnxTensor& x = c.In(0);
  const int64_t axis = c.Axis(c.IntScalar(1, 0), x.rank());
  const bool exclusive = c.Int("exclusive", 0) != 0, reverse = c.Int("reverse", 0) != 0;
  ONNX_EXPECT(c, true, "");
  const AxisView view = ViewAt(x.shape(), axis);
  const bool numbers = WithCarrier(x.type(), [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> y = Elements<T>(x);
    for (int64_t o = 0; o < view.outer; ++o) {
      for (int64_t n = 0; n < view.inner; ++n) {
        T sum = static_cast<T>(start);
        for (int64_t i = 0; i < view.size; ++i) {
          T& v = y[(o * view.size + (reverse ? view.size - 1 - i : i)) * view.inner + n];
          const T next = step(sum, v);
          v = exclusive ? sum : next;
          sum = next;
        }
      }
    }
    c.Out(0, TensorOf<T>(x.type(), x.shape(), y));
  });
  ONNX_EXPECT(c, numbers, "takes numbers");
}
void CumSum(OpCall& c) { Accumulate(c, 0, kAdd); }
void CumProd(OpCall& c) {
  Accumulate(c, 1, [](auto a, auto x) { return a * x; });
}

constexpr KernelRow kRows[] = {
    {"ReduceSum", ReduceSum}, {"ReduceMean", ReduceMean}, {"ReduceProd", ReduceProd},
    {"ReduceL1", ReduceL1},   {"ReduceL2", ReduceL2},     {"ReduceSumSquare", ReduceSumSquare},
    {"ReduceMax", ReduceMax}, {"ReduceMin", ReduceMin},   {"ReduceLogSum", ReduceLogSum},
    {"CumSum", CumSum},       {"CumProd", CumProd},       {"ReduceLogSumExp", ReduceLogSumExp},
};

}  // namespace

absl::Span<const KernelRow> ReduceKernels() { return kRows; }

}  // namespace twinforge
