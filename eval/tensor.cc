#include "eval/tensor.h"

#include <utility>

#include "base/check.h"

namespace twinforge {
namespace {

// To the nearest bf16 of what was rounded to a float already would round twice; so this rounds the double
// itself.
double ToBrain(double value) {
  std::byte code[2];
  FromDouble(DType::kBF16, value, code);
  return ToDouble(DType::kBF16, code);
}

}  // namespace

Tensor::Tensor(DType dtype, Shape shape, std::vector<double> values)
    : dtype_(dtype),
      shape_(std::move(shape)),
      values_(std::make_shared<const std::vector<double>>(std::move(values))) {
  TWIN_CHECK(ElementCount(shape_) == count(), "a tensor's elements do not fill its shape");
}

Tensor Tensor::Reshaped(Shape shape) const {
  TWIN_CHECK(ElementCount(shape) == count(), "a reshape changes the number of elements");
  Tensor result = *this;
  result.shape_ = std::move(shape);
  return result;
}

Tensor Tensor::Converted(DType dtype) const {
  if (dtype == dtype_) return *this;
  if (IsLossless(dtype_, dtype)) {
    Tensor result = *this;
    result.dtype_ = dtype;
    return result;
  }
  std::vector<double> values = *values_;
  RoundTo(dtype, values);
  return Tensor(dtype, shape_, std::move(values));
}

void RoundTo(DType dtype, std::vector<double>& values) {
  if (dtype == DType::kF64) return;
  if (dtype == DType::kF32) {
    for (double& value : values) value = static_cast<double>(static_cast<float>(value));
    return;
  }
  if (dtype == DType::kBF16) {
    for (double& value : values) value = ToBrain(value);
    return;
  }
  std::byte code[8];
  for (double& value : values) {
    FromDouble(dtype, value, code);
    value = ToDouble(dtype, code);
  }
}

}  // namespace twinforge
