// Sums of products.
#include "onnx/kernels/matmul.h"

#include <algorithm>

#include "onnx/kernels/kernel.h"
#include "onnx/kernels/places.h"

namespace twinforge {
template <typename T>
void MultiplyInto(const T* a, const T* b, T* y, int64_t m, int64_t k, int64_t n) {
  for (int64_t i = 0; i < m; ++i) {
    T* row = y + i * n;
    for (int64_t p = 0; p < k; ++p) {
      const T x = a[i * k + p];
      const T* from = b + p * n;
      for (int64_t j = 0; j < n; ++j) row[j] += x * from[j];
    }
  }
}
template void MultiplyInto(const double*, const double*, double*, int64_t, int64_t, int64_t);
template void MultiplyInto(const int64_t*, const int64_t*, int64_t*, int64_t, int64_t, int64_t);

template <typename T>
Product<T> MatmulOf(OpCall& c, const Shape& shape_a, const std::vector<T>& a, const Shape& shape_b,
                    const std::vector<T>& b) {
  Product<T> product;
  Shape left = shape_a, right = shape_b;
  if (left.empty() || right.empty()) {
    c.Fail("multiplies a scalar");
    return product;
  }
  const bool row = left.size() == 1, column = right.size() == 1;
  if (row) left.insert(left.begin(), 1);
  if (column) right.push_back(1);
  const int64_t m = left[left.size() - 2], k = left.back(), n = right.back();
  const Shape batch_a(left.begin(), left.end() - 2), batch_b(right.begin(), right.end() - 2);
  const std::optional<Shape> batch = BroadcastShape(batch_a, batch_b);
  if (!batch || right[right.size() - 2] != k) {
    c.Fail("matrices " + ShapeText(shape_a) + " and " + ShapeText(shape_b) + " do not multiply");
    return product;
  }
  product.shape = *batch;
  if (!row) product.shape.push_back(m);
  if (!column) product.shape.push_back(n);
  const double work = static_cast<double>(m) * static_cast<double>(k) * static_cast<double>(n);
  if (!c.Affordable(product.shape) || !c.Spend(work * static_cast<double>(ElementCount(*batch))))
    return product;
  product.values.assign(static_cast<size_t>(ElementCount(product.shape)), T{0});
  const std::vector<int64_t> at_a = BroadcastPlaces(batch_a, *batch), at_b = BroadcastPlaces(batch_b, *batch);
  for (size_t i = 0; i < at_a.size(); ++i) {
    MultiplyInto(a.data() + at_a[i] * m * k, b.data() + at_b[i] * k * n,
                 product.values.data() + static_cast<int64_t>(i) * m * n, m, k, n);
  }
  return product;
}
template Product<double> MatmulOf(OpCall&, const Shape&, const std::vector<double>&, const Shape&,
                                  const std::vector<double>&);
template Product<int64_t> MatmulOf(OpCall&, const Shape&, const std::vector<int64_t>&, const Shape&,
                                   const std::vector<int64_t>&);
template Product<uint64_t> MatmulOf(OpCall&, const Shape&, const std::vector<uint64_t>&, const Shape&,
                                    const std::vector<uint64_t>&);

namespace {

void MatMul(OpCall& c) {
  ONNX_EXPECT(c, c.In(0).type() == c.In(1).type(), "its inputs are of two types");
  const bool numbers = WithCarrier(c.In(0).type(), [&](auto zero) {
    using T = decltype(zero);
    const Product<T> y =
        MatmulOf<T>(c, c.In(0).shape(), Elements<T>(c.In(0)), c.In(1).shape(), Elements<T>(c.In(1)));
    if (c.ok()) c.Out(0, TensorOf<T>(c.In(0).type(), y.shape, y.values));
  });
  ONNX_EXPECT(c, numbers, "takes numbers");
}

// alpha * op(A) * op(B) + beta * C, C broadcast to the result.
void Gemm(OpCall& c) {
  const OnnxTensor &in_a = c.In(0), &in_b = c.In(1);
  ONNX_EXPECT(c, in_a.rank() == 2 && in_b.rank() == 2 && in_a.type() == in_b.type(),
              "takes two matrices of one type");
  const OnnxTensor a = c.Int("transA", 0) != 0 ? Permuted(in_a, {1, 0}) : in_a;
  const OnnxTensor b = c.Int("transB", 0) != 0 ? Permuted(in_b, {1, 0}) : in_b;
  const double alpha = c.Float("alpha", 1), beta = c.Float("beta", 1);
  const bool numbers = WithCarrier(a.type(), [&](auto zero) {
    using T = decltype(zero);
    Product<T> y = MatmulOf<T>(c, a.shape(), Elements<T>(a), b.shape(), Elements<T>(b));
    ONNX_EXPECT(c, true, "");
    if (alpha != 1) {
      for (T& v : y.values) v = static_cast<T>(alpha * static_cast<double>(v));
    }
    if (c.Has(2)) {
      ONNX_EXPECT(c, BroadcastsTo(c.In(2).shape(), y.shape) && c.In(2).type() == a.type(),
                  "C does not broadcast to the product");
      const std::vector<T> added = Elements<T>(c.In(2));
      const std::vector<int64_t> at = BroadcastPlaces(c.In(2).shape(), y.shape);
      for (size_t k = 0; k < at.size(); ++k) {
        y.values[k] += beta == 1 ? added[at[k]] : static_cast<T>(beta * static_cast<double>(added[at[k]]));
      }
    }
    c.Out(0, TensorOf<T>(a.type(), y.shape, y.values));
  });
  ONNX_EXPECT(c, numbers, "takes numbers");
}

}  // namespace

// Per tensor, or per row of the left operand and per column of the right one.
std::vector<int64_t> WithoutZeroPoint(OpCall& c, int input, int zero_point, bool by_row) {
  std::vector<int64_t> x = c.Ints(input);
  if (!c.ok() || !c.Has(zero_point)) return x;
  const std::vector<int64_t> zero = c.Ints(zero_point);
  const Shape& shape = c.In(input).shape();
  const int64_t columns = shape.empty() ? 1 : shape.back(),
                rows = shape.size() < 2 ? 1 : shape[shape.size() - 2];
  const int64_t wanted = by_row ? rows : columns;
  if (zero.size() != 1 && static_cast<int64_t>(zero.size()) != wanted) {
    c.Fail("a zero point is neither one nor one for each " + std::string(by_row ? "row" : "column"));
    return x;
  }
  for (size_t k = 0; k < x.size(); ++k) {
    const int64_t at = static_cast<int64_t>(k), line = by_row ? at / columns % rows : at % columns;
    x[k] -= zero[zero.size() == 1 ? 0 : line];
  }
  return x;
}

namespace {

void MatMulInteger(OpCall& c) {
  const std::vector<int64_t> a = WithoutZeroPoint(c, 0, 2, true), b = WithoutZeroPoint(c, 1, 3, false);
  ONNX_EXPECT(c, true, "");
  const Product<int64_t> y = MatmulOf<int64_t>(c, c.In(0).shape(), a, c.In(1).shape(), b);
  ONNX_EXPECT(c, true, "");
  c.Out(0, TensorOf<int64_t>(ElementType::kInt32, y.shape, y.values));
}

constexpr KernelRow kRows[] = {{"MatMul", MatMul}, {"Gemm", Gemm}, {"MatMulInteger", MatMulInteger}};

}  // namespace

absl::Span<const KernelRow> MatmulKernels() { return kRows; }

}  // namespace twinforge
