// Numbers as small integers or small floats with a scale, and back.
#include <algorithm>
#include <cmath>

#include "onnx/kernels/kernel.h"
#include "onnx/kernels/matmul.h"
#include "onnx/kernels/places.h"
#include "onnx/tensor.h"

namespace twinforge {
namespace {

// For each element of x its place in a scale or zero point: one for all, one for each slice of an axis, or
// one for each block along that axis.
std::vector<int64_t> ScalePlaces(OpCall& c, const OnnxTensor& x, const OnnxTensor& scale) {
  std::vector<int64_t> at(static_cast<size_t>(x.count()), 0);
  const int64_t block = c.Int("block_size", 0);
  if (scale.count() == 1 && (block == 0 || scale.rank() < 2)) return at;
  const int64_t axis = c.Axis(c.Int("axis", 1), std::max<int64_t>(x.rank(), 1));
  if (!c.ok() || x.rank() == 0) return at;
  const AxisView view = ViewAt(x.shape(), axis);
  if (block == 0) {
    if (scale.rank() != 1 || scale.count() != view.size) {
      c.Fail("a scale or zero point is not one for each slice of its axis");
      return at;
    }
    for (int64_t k = 0; k < x.count(); ++k) at[k] = k / view.inner % view.size;
    return at;
  }
  Shape wanted = x.shape();
  wanted[axis] = block > 0 ? (view.size + block - 1) / block : -1;
  if (scale.shape() != wanted) {
    c.Fail("a scale or zero point is not one for each block");
    return at;
  }
  for (int64_t k = 0; k < x.count(); ++k) {
    const int64_t n = k % view.inner, i = k / view.inner % view.size, o = k / (view.inner * view.size);
    at[k] = (o * wanted[axis] + i / block) * view.inner + n;
  }
  return at;
}

ElementType TypeOr(OpCall& c, const char* attribute, ElementType absent) {
  const int64_t code = c.Int(attribute, 0);
  if (code == 0) return absent;
  const std::optional<ElementType> type = ElementTypeFromCode(code);
  if (!type || BytesInMemory(*type) == 0) c.Fail("names no type of numbers");
  return type.value_or(absent);
}

double Saturated8(ElementType type, double v) {
  const double most = type == ElementType::kFloat8E4M3FN     ? 448
                      : type == ElementType::kFloat8E4M3FNUZ ? 240
                                                             : 57344;
  return std::isnan(v) ? v : std::clamp(v, -most, most);
}

void QuantizeLinear(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  const std::vector<double> v = c.Doubles(0), scale = c.Doubles(1);
  const ElementType to = c.Has(2) ? c.In(2).type() : TypeOr(c, "output_dtype", ElementType::kUint8);
  const ElementType precision =
      TypeOr(c, "precision", IsFloatingElement(c.In(1).type()) ? c.In(1).type() : ElementType::kFloat);
  std::vector<double> zero = c.Has(2) ? c.Doubles(2) : std::vector<double>(scale.size(), 0);
  const std::vector<int64_t> at = ScalePlaces(c, x, c.In(1));
  ONNX_EXPECT(c, zero.size() == scale.size(), "scale and zero point differ in shape");
  ONNX_EXPECT(c, BytesInMemory(to) > 0, "quantises to numbers");
  const bool saturate = c.Int("saturate", 1) != 0, floats = IsFloatingElement(to);
  std::vector<double> y(v.size());
  for (size_t k = 0; k < y.size(); ++k) {
    const double scaled = RoundedTo(precision, v[k] / scale[at[k]]);
    if (floats) {
      y[k] = scaled + zero[at[k]];
      if (to != ElementType::kFloat4E2M1 && saturate) y[k] = Saturated8(to, y[k]);
    } else {
      y[k] = std::clamp(std::nearbyint(scaled) + zero[at[k]], static_cast<double>(LowestOf(to)),
                        static_cast<double>(HighestOf(to)));
    }
  }
  c.Out(0, TensorOf<double>(to, x.shape(), y));
}

void DequantizeLinear(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  std::vector<double> v = c.Doubles(0);
  const std::vector<double> scale = c.Doubles(1);
  const ElementType to = TypeOr(c, "output_dtype", c.In(1).type());
  const std::vector<double> zero = c.Has(2) ? c.Doubles(2) : std::vector<double>(scale.size(), 0);
  const std::vector<int64_t> at = ScalePlaces(c, x, c.In(1));
  ONNX_EXPECT(c, zero.size() == scale.size(), "scale and zero point differ in shape");
  for (size_t k = 0; k < v.size(); ++k) v[k] = (v[k] - zero[at[k]]) * scale[at[k]];
  c.Out(0, TensorOf<double>(to, x.shape(), v));
}

// UINT8 over the range of the input, which is made to contain 0.
void DynamicQuantizeLinear(OpCall& c) {
  const std::vector<double> x = c.Doubles(0);
  ONNX_EXPECT(c, true, "");
  double low = 0, high = 0;
  for (const double v : x) {
    low = std::fmin(low, v);
    high = std::fmax(high, v);
  }
  const double scale = RoundedTo(ElementType::kFloat, (high - low) / 255);
  const double zero = scale == 0 ? 0 : std::nearbyint(std::clamp(-low / scale, 0.0, 255.0));
  std::vector<double> y(x.size());
  for (size_t k = 0; k < x.size(); ++k) {
    const double scaled = scale == 0 ? 0 : std::nearbyint(RoundedTo(ElementType::kFloat, x[k] / scale));
    y[k] = std::clamp(scaled + zero, 0.0, 255.0);
  }
  c.Out(0, TensorOf<double>(ElementType::kUint8, c.In(0).shape(), y));
  c.Out(1, ScalarOf(ElementType::kFloat, scale));
  c.Out(2, ScalarOf(ElementType::kUint8, zero));
}

// a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero.
void QLinearMatMul(OpCall& c) {
  for (const int i : {1, 2, 4, 5, 6, 7}) ONNX_EXPECT(c, c.Has(i), "lacks a scale or zero point");
  const std::vector<int64_t> a = WithoutZeroPoint(c, 0, 2, true), b = WithoutZeroPoint(c, 3, 5, false);
  const std::vector<double> scale_a = c.Doubles(1), scale_b = c.Doubles(4);
  const double scale_y = c.DoubleScalar(6, 1), zero_y = c.DoubleScalar(7, 0);
  ONNX_EXPECT(c, true, "");
  const Product<int64_t> product = MatmulOf<int64_t>(c, c.In(0).shape(), a, c.In(3).shape(), b);
  ONNX_EXPECT(c, true, "");
  const int64_t columns = c.In(3).rank() < 2 ? 1 : c.In(3).shape().back();
  const int64_t rows = c.In(0).rank() < 2 ? 1 : c.In(0).dim(c.In(0).rank() - 2);
  ONNX_EXPECT(c, scale_a.size() == 1 || static_cast<int64_t>(scale_a.size()) == rows,
              "a_scale is neither one nor one for each row");
  ONNX_EXPECT(c, scale_b.size() == 1 || static_cast<int64_t>(scale_b.size()) == columns,
              "b_scale is neither one nor one for each column");
  const ElementType to = c.In(7).type();
  std::vector<double> y(product.values.size());
  for (size_t k = 0; k < y.size(); ++k) {
    const int64_t at = static_cast<int64_t>(k);
    const double sa = scale_a[scale_a.size() == 1 ? 0 : at / columns % rows],
                 sb = scale_b[scale_b.size() == 1 ? 0 : at % columns];
    const double scaled = static_cast<double>(product.values[k]) * (sa * sb / scale_y);
    y[k] = std::clamp(std::nearbyint(scaled + zero_y), static_cast<double>(LowestOf(to)),
                      static_cast<double>(HighestOf(to)));
  }
  c.Out(0, TensorOf<double>(to, product.shape, y));
}

constexpr KernelRow kRows[] = {
    {"QuantizeLinear", QuantizeLinear},
    {"DequantizeLinear", DequantizeLinear},
    {"DynamicQuantizeLinear", DynamicQuantizeLinear},
    {"QLinearMatMul", QLinearMatMul},
};

}  // namespace

absl::Span<const KernelRow> QuantiseKernels() { return kRows; }

}  // namespace twinforge
