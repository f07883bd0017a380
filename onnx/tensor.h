// A tensor of any ONNX type: shape, elements in row-major order, never changed once made.
//
// Elements are shared, and may be a view into a file's bytes: a tensor is copied for free. Kernels compute in
// the carrier of a type (element_type.h), which holds each of its values exactly, and round or wrap once,
// when a tensor is made from the results:
//
//   std::vector<double> x = Elements<double>(tensor);     // any floating type
//   ...                                                    // exact or correctly rounded work in double
//   OnnxTensor y = TensorOf<double>(tensor.type(), shape, x);   // to nearest, ties to even
//
// For +, -, *, / and sqrt in types up to 32 bits, rounding double's result is rounding the exact one
// (Figueroa, When is double rounding innocuous?, 1995).
#ifndef TWINFORGE_ONNX_TENSOR_H_
#define TWINFORGE_ONNX_TENSOR_H_

#include <complex>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "onnx/element_type.h"
#include "weights/shape.h"

namespace twinforge {

class OnnxTensor {
 public:
  OnnxTensor() = default;  // FLOAT [0]

  // `bytes` lies in `owner`, which lives as long as the tensor. REQUIRES: bytes fit type and shape.
  OnnxTensor(ElementType type, Shape shape, std::shared_ptr<const void> owner, const std::byte* bytes);
  OnnxTensor(ElementType type, Shape shape, std::vector<std::byte> bytes);
  OnnxTensor(Shape shape, std::vector<std::string> strings);

  ElementType type() const { return type_; }
  const Shape& shape() const { return shape_; }
  int64_t rank() const { return static_cast<int64_t>(shape_.size()); }
  int64_t dim(int64_t axis) const { return shape_[static_cast<size_t>(axis)]; }
  int64_t count() const { return count_; }
  ElementCarrier carrier() const { return ElementCarrierOf(type_); }
  bool is_string() const { return type_ == ElementType::kString; }

  const std::byte* bytes() const { return bytes_; }                      // of types other than strings
  const std::vector<std::string>& strings() const { return *strings_; }  // REQUIRES: is_string()
  int64_t byte_size() const { return count_ * BytesInMemory(type_); }

  // The same elements in another shape. REQUIRES: as many elements.
  OnnxTensor WithShape(Shape shape) const;
  // The same bytes as another type of the same width. REQUIRES: neither is a string.
  OnnxTensor WithType(ElementType type) const;

 private:
  ElementType type_ = ElementType::kFloat;
  Shape shape_ = {0};
  int64_t count_ = 0;
  std::shared_ptr<const void> owner_;
  const std::byte* bytes_ = nullptr;
  std::shared_ptr<const std::vector<std::string>> strings_;
};

// All elements as T: double (any floating, integer or bool type), int64_t (integers and bool; UINT64 keeps
// its bits), uint64_t (the same bits) or std::complex<double> (complex types). REQUIRES: no strings.
template <typename T>
std::vector<T> Elements(const OnnxTensor& tensor);

// A tensor of `type` from numbers: floating types round, integers wrap to their width, bool is "not zero".
// Large floats become infinity where the type has one, else NaN, else the largest value (weights/dtype.h).
template <typename T>
OnnxTensor TensorOf(ElementType type, Shape shape, absl::Span<const T> values);
template <typename T>
OnnxTensor TensorOf(ElementType type, Shape shape, const std::vector<T>& values) {
  return TensorOf<T>(type, std::move(shape), absl::MakeConstSpan(values));
}

// `value` as `type` holds it.
double RoundedTo(ElementType type, double value);
int64_t WrappedTo(ElementType type, int64_t value);

// Element k of the result is element from[k] of `x`, or zero (or "") where from[k] is -1.
OnnxTensor TakeElements(const OnnxTensor& x, Shape shape, absl::Span<const int64_t> from);
// The same, from several tensors of one type: which[k] says from which.
OnnxTensor TakeElements(absl::Span<const OnnxTensor> xs, Shape shape, absl::Span<const int32_t> which,
                        absl::Span<const int64_t> from);

// One number, of rank 0.
OnnxTensor ScalarOf(ElementType type, double value);
OnnxTensor Int64Tensor(const std::vector<int64_t>& values);  // of rank 1
OnnxTensor BoolScalar(bool value);

// Calls `work` with a double, an int64_t or a uint64_t, whichever carries `type`; false for other types.
template <typename Work>
bool WithCarrier(ElementType type, Work&& work) {
  switch (ElementCarrierOf(type)) {
    case ElementCarrier::kDouble:
      work(double{});
      return true;
    case ElementCarrier::kInt64:
      work(int64_t{});
      return true;
    case ElementCarrier::kUint64:
      work(uint64_t{});
      return true;
    case ElementCarrier::kNone:
    case ElementCarrier::kComplex:
    case ElementCarrier::kString:
      return false;
  }
  return false;
}

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_TENSOR_H_
