// Products of matrices, batched and broadcast as numpy's matmul.
#ifndef TWINFORGE_ONNX_KERNELS_MATMUL_H_
#define TWINFORGE_ONNX_KERNELS_MATMUL_H_

#include <vector>

#include "onnx/op_call.h"

namespace twinforge {

template <typename T>
struct Product {
  Shape shape;
  std::vector<T> values;
};

// Exact in int64_t as long as no sum overflows; in double each sum in the order of its terms. A failure of
// the call where shapes do not fit.
template <typename T>
Product<T> MatmulOf(OpCall& c, const Shape& shape_a, const std::vector<T>& a, const Shape& shape_b,
                    const std::vector<T>& b);

// y [m, n] += a [m, k] b [k, n].
template <typename T>
void MultiplyInto(const T* a, const T* b, T* y, int64_t m, int64_t k, int64_t n);

// Elements of an integer input less its zero point: one, or one for each row (else each column).
std::vector<int64_t> WithoutZeroPoint(OpCall& c, int input, int zero_point, bool by_row);

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_KERNELS_MATMUL_H_
