// A value while a graph is evaluated: whole, row-major, in doubles.
//
// `dtype` says what the doubles have been rounded to; every element is a value of it. The elements are shared
// and never change, so a copy, a reshape or a change of dtype that loses nothing costs nothing.
#ifndef TWINFORGE_EVAL_TENSOR_H_
#define TWINFORGE_EVAL_TENSOR_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "weights/dtype.h"
#include "weights/shape.h"

namespace twinforge {

class Tensor {
 public:
  Tensor() = default;  // rank 1, no element
  // REQUIRES: values.size() is the product of `shape`; each is a value of `dtype`.
  Tensor(DType dtype, Shape shape, std::vector<double> values);

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t rank() const { return static_cast<int64_t>(shape_.size()); }
  int64_t count() const { return static_cast<int64_t>(values_->size()); }
  const double* data() const { return values_->data(); }
  const std::vector<double>& values() const { return *values_; }

  // The same elements under another shape. REQUIRES: an equal product.
  Tensor Reshaped(Shape shape) const;
  // Each element rounded to `dtype`, ties to even; a truth value is whether it is not 0.
  Tensor Converted(DType dtype) const;

 private:
  DType dtype_ = DType::kF64;
  Shape shape_ = {0};
  std::shared_ptr<const std::vector<double>> values_ = std::make_shared<std::vector<double>>();
};

using NamedTensors = std::map<std::string, Tensor>;

// Rounds in place to the values that `dtype` has. f64 leaves all as it is.
void RoundTo(DType dtype, std::vector<double>& values);

}  // namespace twinforge

#endif  // TWINFORGE_EVAL_TENSOR_H_
