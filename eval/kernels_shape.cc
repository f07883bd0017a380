// Primitives that move elements or make them from nothing.
#include <algorithm>

#include "base/check.h"
#include "eval/kernels.h"

namespace twinforge {
namespace {

// Calls visit(outer) for each index of all axes but the last, with the offset that `strides` give it.
template <typename Visit>
void EachRow(const Shape& shape, absl::Span<const int64_t> strides, int64_t offset, Visit visit) {
  const int64_t outer = static_cast<int64_t>(shape.size()) - 1;
  std::vector<int64_t> index(shape.size(), 0);
  while (true) {
    visit(offset);
    int64_t axis = outer - 1;
    for (; axis >= 0; --axis) {
      offset += strides[axis];
      if (++index[axis] < shape[axis]) break;
      offset -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}

std::vector<double> Concat(int64_t axis, absl::Span<const Tensor> xs, const Shape& shape) {
  int64_t outer = 1, inner = 1;
  for (int64_t i = 0; i < axis; ++i) outer *= shape[i];
  for (size_t i = axis + 1; i < shape.size(); ++i) inner *= shape[i];
  std::vector<double> out;
  out.reserve(ElementCount(shape));
  for (int64_t i = 0; i < outer; ++i) {
    for (const Tensor& x : xs) {
      const int64_t run = x.shape()[axis] * inner;
      out.insert(out.end(), x.data() + i * run, x.data() + (i + 1) * run);
    }
  }
  return out;
}

std::vector<double> Pad(const PadAttrs& attrs, const Tensor& x, const Shape& shape) {
  int64_t outer = 1, inner = 1;
  const int64_t axis = attrs.axis(), extent = x.shape()[axis];
  for (int64_t i = 0; i < axis; ++i) outer *= shape[i];
  for (size_t i = axis + 1; i < shape.size(); ++i) inner *= shape[i];
  std::vector<double> out(ElementCount(shape), attrs.value());
  for (int64_t i = 0; i < outer; ++i) {
    for (int64_t j = 0; j < extent; ++j) {
      const int64_t at = attrs.low() + j * (attrs.interior() + 1);
      std::copy_n(x.data() + (i * extent + j) * inner, inner, out.data() + (i * shape[axis] + at) * inner);
    }
  }
  return out;
}

}  // namespace

size_t SlicedAxis(const Graph& graph, const Node& node) {
  const std::vector<Axis>& axes = graph.node(node.operands[0]).type.axes;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].name == node.attrs->slice().axis()) return i;
  }
  TWIN_CHECK(false, "a slice along no axis was verified");
}

std::vector<double> Walk(const double* in, int64_t offset, absl::Span<const int64_t> strides,
                         const Shape& shape) {
  const int64_t count = ElementCount(shape);
  std::vector<double> out(count);
  if (count == 0) return out;
  if (shape.empty()) {
    out[0] = in[offset];
    return out;
  }
  const int64_t run = shape.back(), step = strides[shape.size() - 1];
  double* to = out.data();
  EachRow(shape, strides, offset, [&](int64_t at) {
    const double* from = in + at;
    if (step == 1) {
      std::copy_n(from, run, to);
    } else if (step == 0) {
      std::fill_n(to, run, *from);
    } else {
      for (int64_t i = 0; i < run; ++i) to[i] = from[i * step];
    }
    to += run;
  });
  return out;
}

std::vector<double> EvalSource(const Node& node, absl::Span<const Tensor> x, const Shape& shape) {
  if (node.op == OpKind::kDimensionSize)
    return {static_cast<double>(x[0].shape()[node.attrs->axis().axis()])};
  if (node.op == OpKind::kConstant) {
    const auto& values = node.attrs->constant().values();
    if (values.size() == 1) return std::vector<double>(ElementCount(shape), values[0]);
    return std::vector<double>(values.begin(), values.end());
  }
  std::vector<double> along(shape[node.attrs->iota().axis()]);
  for (size_t i = 0; i < along.size(); ++i) along[i] = static_cast<double>(i);
  std::vector<int64_t> strides(shape.size(), 0);
  strides[node.attrs->iota().axis()] = 1;
  return Walk(along.data(), 0, strides, shape);
}

std::vector<double> EvalShape(const Graph& graph, const Node& node, absl::Span<const Tensor> x,
                              const Shape& shape) {
  const Tensor& first = x[0];
  std::vector<int64_t> strides = Strides(first.shape());
  switch (node.op) {
    case OpKind::kBroadcast: {
      std::vector<int64_t> spread(shape.size(), 0);
      for (size_t i = 0; i < strides.size(); ++i) {
        spread[node.attrs->broadcast().axes(static_cast<int>(i))] = strides[i];
      }
      return Walk(first.data(), 0, spread, shape);
    }
    case OpKind::kTranspose: {
      std::vector<int64_t> permuted;
      for (int64_t place : node.attrs->transpose().permutation()) permuted.push_back(strides[place]);
      return Walk(first.data(), 0, permuted, shape);
    }
    case OpKind::kSlice:
      return Walk(first.data(), node.attrs->slice().start() * strides[SlicedAxis(graph, node)], strides,
                  shape);
    case OpKind::kReverse: {
      const int64_t axis = node.attrs->axis().axis();
      const int64_t last = (shape[axis] - 1) * strides[axis];
      strides[axis] = -strides[axis];
      return Walk(first.data(), last, strides, shape);
    }
    case OpKind::kConcat:
      return Concat(node.attrs->axis().axis(), x, shape);
    case OpKind::kPad:
      return Pad(node.attrs->pad(), first, shape);
    default:
      break;
  }
  TWIN_CHECK(false, "not a matter of shapes");
}

}  // namespace twinforge
