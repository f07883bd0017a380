// Reductions, products, recurrences, choices.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "eval/kernels.h"

namespace twinforge {
namespace {

using Places = google::protobuf::RepeatedField<int64_t>;

bool Holds(const Places& places, int64_t axis) {
  return std::find(places.begin(), places.end(), axis) != places.end();
}

int64_t Product(const Tensor& x, const std::vector<int64_t>& axes) {
  int64_t product = 1;
  for (int64_t axis : axes) product *= x.shape()[axis];
  return product;
}

// The elements of x with its axes in the given order; x's own where that is the order they have.
Tensor InOrder(const Tensor& x, const std::vector<int64_t>& order) {
  if (std::is_sorted(order.begin(), order.end())) return x;
  const std::vector<int64_t> strides = Strides(x.shape());
  std::vector<int64_t> permuted;
  Shape shape;
  for (int64_t axis : order) {
    permuted.push_back(strides[axis]);
    shape.push_back(x.shape()[axis]);
  }
  return Tensor(x.dtype(), shape, Walk(x.data(), 0, permuted, shape));
}

double Fold(ReduceAttrs::Kind kind, const double* x, int64_t count) {
  double result = kind == ReduceAttrs::SUM ? 0 : std::numeric_limits<double>::infinity();
  if (kind == ReduceAttrs::MAX) result = -result;
  for (int64_t i = 0; i < count; ++i) {
    if (kind == ReduceAttrs::SUM) {
      result += x[i];
    } else if (std::isnan(x[i]) || (kind == ReduceAttrs::MAX ? x[i] > result : x[i] < result)) {
      result = x[i];
      if (std::isnan(result)) break;
    }
  }
  return result;
}

// c[m, n] += a[m, k] b[k, n]
void MatMul(const double* a, const double* b, double* c, int64_t m, int64_t k, int64_t n) {
  for (int64_t i = 0; i < m; ++i) {
    double* __restrict row = c + i * n;
    for (int64_t p = 0; p < k; ++p) {
      const double factor = a[i * k + p];
      const double* __restrict from = b + p * n;
      for (int64_t j = 0; j < n; ++j) row[j] += factor * from[j];
    }
  }
}

// Advances a row-major index; false at the end.
bool Next(std::vector<int64_t>& index, absl::Span<const int64_t> shape) {
  for (size_t axis = shape.size(); axis-- > 0;) {
    if (++index[axis] < shape[axis]) return true;
    index[axis] = 0;
  }
  return false;
}

}  // namespace

std::vector<double> EvalReduce(const Node& node, const Tensor& x) {
  const ReduceAttrs& attrs = node.attrs->reduce();
  std::vector<int64_t> kept, gone;
  for (int64_t axis = 0; axis < x.rank(); ++axis) (Holds(attrs.axes(), axis) ? gone : kept).push_back(axis);
  const int64_t outer = Product(x, kept), inner = Product(x, gone);
  kept.insert(kept.end(), gone.begin(), gone.end());
  const Tensor ordered = InOrder(x, kept);
  std::vector<double> out(outer);
  for (int64_t i = 0; i < outer; ++i) out[i] = Fold(attrs.kind(), ordered.data() + i * inner, inner);
  return out;
}

std::vector<double> EvalDot(const Node& node, const Tensor& x, const Tensor& y) {
  const DotAttrs& attrs = node.attrs->dot();
  const std::vector<int64_t> x_batch(attrs.lhs_batch().begin(), attrs.lhs_batch().end()),
      y_batch(attrs.rhs_batch().begin(), attrs.rhs_batch().end()),
      x_contract(attrs.lhs_contract().begin(), attrs.lhs_contract().end()),
      y_contract(attrs.rhs_contract().begin(), attrs.rhs_contract().end());
  std::vector<int64_t> left, right;
  for (int64_t axis = 0; axis < x.rank(); ++axis) {
    if (!Holds(attrs.lhs_batch(), axis) && !Holds(attrs.lhs_contract(), axis)) left.push_back(axis);
  }
  for (int64_t axis = 0; axis < y.rank(); ++axis) {
    if (!Holds(attrs.rhs_batch(), axis) && !Holds(attrs.rhs_contract(), axis)) right.push_back(axis);
  }
  const int64_t batch = Product(x, x_batch), m = Product(x, left), k = Product(x, x_contract),
                n = Product(y, right);
  std::vector<int64_t> x_order = x_batch, y_order = y_batch;
  x_order.insert(x_order.end(), left.begin(), left.end());
  x_order.insert(x_order.end(), x_contract.begin(), x_contract.end());
  y_order.insert(y_order.end(), y_contract.begin(), y_contract.end());
  y_order.insert(y_order.end(), right.begin(), right.end());
  const Tensor a = InOrder(x, x_order), b = InOrder(y, y_order);
  std::vector<double> out(batch * m * n, 0.0);
  for (int64_t i = 0; i < batch; ++i) {
    MatMul(a.data() + i * m * k, b.data() + i * k * n, out.data() + i * m * n, m, k, n);
  }
  return out;
}

absl::StatusOr<std::vector<double>> EvalGather(const Node& node, const Tensor& x, const Tensor& index,
                                               const Axis& axis) {
  const int64_t place = node.attrs->axis().axis();
  const int64_t extent = x.shape()[place], limit = axis.logical != 0 ? axis.logical : extent;
  int64_t shared = 1, inner = 1;
  for (int64_t i = 0; i < place; ++i) shared *= x.shape()[i];
  for (int64_t i = place + 1; i < x.rank(); ++i) inner *= x.shape()[i];
  const int64_t each = shared == 0 ? 0 : index.count() / shared;
  std::vector<double> out;
  out.reserve(index.count() * inner);
  for (int64_t i = 0; i < index.count(); ++i) {
    const double at = index.data()[i];
    if (!(at >= 0 && at < static_cast<double>(limit))) {
      std::vector<int64_t> where(index.rank());
      for (int64_t rest = i, d = index.rank() - 1; d >= 0; rest /= index.shape()[d--])
        where[d] = rest % index.shape()[d];
      return Error(
          1901, node.path,
          absl::StrCat(at, " at [", absl::StrJoin(where, ", "), "] is no place of ", axis.name, "=", limit));
    }
    const double* from = x.data() + (i / each * extent + static_cast<int64_t>(at)) * inner;
    out.insert(out.end(), from, from + inner);
  }
  return out;
}

std::vector<double> EvalTopK(const Node& node, const Tensor& x) {
  const int64_t k = node.attrs->top_k().k(), width = x.shape().back();
  const int64_t rows = width == 0 ? 0 : x.count() / width;
  std::vector<double> out;
  std::vector<int64_t> order(width);
  for (int64_t row = 0; row < rows; ++row) {
    const double* at = x.data() + row * width;
    std::iota(order.begin(), order.end(), 0);
    // NaN counts as the largest, so that it is seen rather than lost.
    std::stable_sort(order.begin(), order.end(), [at](int64_t a, int64_t b) {
      return std::isnan(at[a]) ? !std::isnan(at[b]) : at[a] > at[b];
    });
    for (int64_t i = 0; i < std::min(k, width); ++i) out.push_back(static_cast<double>(order[i]));
  }
  return out;
}

std::vector<double> EvalConv(const Node& node, const Tensor& x, const Tensor& kernel, const Shape& shape) {
  const ConvAttrs& attrs = node.attrs->conv();
  const size_t spatial = shape.size() - 2;
  const int64_t groups = std::max<int64_t>(attrs.groups(), 1);
  const int64_t in = x.shape().back(), out_channels = shape.back();
  const int64_t in_part = in / groups, out_part = out_channels / groups;
  const std::vector<int64_t> x_strides = Strides(x.shape()), k_strides = Strides(kernel.shape());
  const Shape places(shape.begin(), shape.end() - 1);
  const Shape window(kernel.shape().begin(), kernel.shape().begin() + static_cast<int64_t>(spatial));
  std::vector<double> out(ElementCount(shape), 0.0);
  if (out.empty()) return out;
  std::vector<int64_t> place(places.size(), 0);
  double* to = out.data();
  do {
    std::vector<int64_t> tap(spatial, 0);
    do {
      int64_t from = place[0] * x_strides[0], weight = 0;
      bool inside = true;
      for (size_t i = 0; i < spatial && inside; ++i) {
        const int axis = static_cast<int>(i);
        const int64_t at = place[1 + i] * attrs.strides(axis) + tap[i] - attrs.low(axis);
        inside = at >= 0 && at < x.shape()[1 + i];
        from += at * x_strides[1 + i];
        weight += tap[i] * k_strides[i];
      }
      for (int64_t o = 0; inside && o < out_channels; ++o) {
        const double* values = x.data() + from + o / out_part * in_part;
        for (int64_t c = 0; c < in_part; ++c) {
          to[o] += values[c] * kernel.data()[weight + c * out_channels + o];
        }
      }
    } while (Next(tap, window));
    to += out_channels;
  } while (Next(place, places));
  return out;
}

// h_t = h_{t-1} . a_t + u_t, each h_t rounded to the dtype before it is used again.
std::vector<double> EvalScan(const Node& node, absl::Span<const Tensor> x) {
  const Tensor &first = x[0], &decay = x[1], &update = x[2];
  const bool matrix = node.attrs->scan().product() == ScanAttrs::MATRIX;
  const int64_t batch = update.shape()[0], steps = update.shape()[1];
  const int64_t width = batch * steps == 0 ? 0 : update.count() / (batch * steps);
  const int64_t decay_width = batch * steps == 0 ? 0 : decay.count() / (batch * steps);
  const int64_t n = matrix ? update.shape().back() : 1, m = matrix ? update.shape()[update.rank() - 2] : 1;
  std::vector<double> out;
  out.reserve(update.count());
  for (int64_t b = 0; b < batch; ++b) {
    std::vector<double> state(first.data() + b * width, first.data() + (b + 1) * width);
    for (int64_t t = 0; t < steps; ++t) {
      const double* u = update.data() + (b * steps + t) * width;
      const double* a = decay.data() + (b * steps + t) * decay_width;
      std::vector<double> next(u, u + width);
      if (matrix) {
        for (int64_t i = 0; i * m * n < width; ++i) {
          MatMul(state.data() + i * m * n, a + i * n * n, next.data() + i * m * n, m, n, n);
        }
      } else {
        for (int64_t i = 0; i < width; ++i) next[i] += state[i] * a[i];
      }
      RoundTo(node.type.dtype, next);
      state = std::move(next);
      out.insert(out.end(), state.begin(), state.end());
    }
  }
  return out;
}

}  // namespace twinforge
