#include <cmath>

#include "base/check.h"
#include "eval/kernels.h"

namespace twinforge {
namespace {

template <typename F>
std::vector<double> Each(const Tensor& x, F f) {
  std::vector<double> out(x.count());
  for (int64_t i = 0; i < x.count(); ++i) out[i] = f(x.data()[i]);
  return out;
}

template <typename F>
std::vector<double> Each(const Tensor& x, const Tensor& y, F f) {
  TWIN_CHECK(x.count() == y.count(), "elementwise operands of unequal extents");
  std::vector<double> out(x.count());
  for (int64_t i = 0; i < x.count(); ++i) out[i] = f(x.data()[i], y.data()[i]);
  return out;
}

// A NaN on either side is the result, as in StableHLO.
double Larger(double a, double b) { return a > b || std::isnan(a) ? a : b; }
double Smaller(double a, double b) { return a < b || std::isnan(a) ? a : b; }

std::vector<double> Compare(CompareAttrs::Direction direction, const Tensor& x, const Tensor& y) {
  switch (direction) {
    case CompareAttrs::EQ:
      return Each(x, y, [](double a, double b) { return a == b ? 1.0 : 0.0; });
    case CompareAttrs::NE:
      return Each(x, y, [](double a, double b) { return a != b ? 1.0 : 0.0; });
    case CompareAttrs::LT:
      return Each(x, y, [](double a, double b) { return a < b ? 1.0 : 0.0; });
    case CompareAttrs::LE:
      return Each(x, y, [](double a, double b) { return a <= b ? 1.0 : 0.0; });
    case CompareAttrs::GT:
      return Each(x, y, [](double a, double b) { return a > b ? 1.0 : 0.0; });
    case CompareAttrs::GE:
      return Each(x, y, [](double a, double b) { return a >= b ? 1.0 : 0.0; });
    default:
      break;
  }
  TWIN_CHECK(false, "a comparison without a direction was verified");
}

// To an integer a number loses its fraction; rounding to floating types happens to every result.
std::vector<double> ConvertTo(DType dtype, const Tensor& x) {
  if (!IsInteger(dtype) || dtype == DType::kBool || IsInteger(x.dtype())) return x.values();
  return Each(x, [](double a) { return std::trunc(a); });
}

std::vector<double> Select(const Tensor& p, const Tensor& x, const Tensor& y) {
  TWIN_CHECK(p.count() == x.count() && x.count() == y.count(), "select of unequal extents");
  std::vector<double> out(x.count());
  for (int64_t i = 0; i < x.count(); ++i) out[i] = p.data()[i] != 0 ? x.data()[i] : y.data()[i];
  return out;
}

double Sign(double a) { return std::isnan(a) || a == 0 ? a : std::copysign(1.0, a); }

}  // namespace

std::vector<double> EvalElementwise(const Node& node, absl::Span<const Tensor> x) {
  switch (node.op) {
    case OpKind::kAdd:
      return Each(x[0], x[1], [](double a, double b) { return a + b; });
    case OpKind::kSubtract:
      return Each(x[0], x[1], [](double a, double b) { return a - b; });
    case OpKind::kMultiply:
      return Each(x[0], x[1], [](double a, double b) { return a * b; });
    case OpKind::kDivide:
      if (IsInteger(node.type.dtype))
        return Each(x[0], x[1], [](double a, double b) { return std::trunc(a / b); });
      return Each(x[0], x[1], [](double a, double b) { return a / b; });
    case OpKind::kMaximum:
      return Each(x[0], x[1], Larger);
    case OpKind::kMinimum:
      return Each(x[0], x[1], Smaller);
    case OpKind::kPower:
      return Each(x[0], x[1], [](double a, double b) { return std::pow(a, b); });
    case OpKind::kCompare:
      return Compare(node.attrs->compare().direction(), x[0], x[1]);
    case OpKind::kNegate:
      return Each(x[0], [](double a) { return -a; });
    case OpKind::kAbs:
      return Each(x[0], [](double a) { return std::fabs(a); });
    case OpKind::kExp:
      return Each(x[0], [](double a) { return std::exp(a); });
    case OpKind::kLog:
      return Each(x[0], [](double a) { return std::log(a); });
    case OpKind::kSqrt:
      return Each(x[0], [](double a) { return std::sqrt(a); });
    case OpKind::kRsqrt:
      return Each(x[0], [](double a) { return 1 / std::sqrt(a); });
    case OpKind::kTanh:
      return Each(x[0], [](double a) { return std::tanh(a); });
    case OpKind::kErf:
      return Each(x[0], [](double a) { return std::erf(a); });
    case OpKind::kSine:
      return Each(x[0], [](double a) { return std::sin(a); });
    case OpKind::kCosine:
      return Each(x[0], [](double a) { return std::cos(a); });
    case OpKind::kLogistic:
      return Each(x[0], [](double a) { return 1 / (1 + std::exp(-a)); });
    case OpKind::kFloor:
      return Each(x[0], [](double a) { return std::floor(a); });
    case OpKind::kSign:
      return Each(x[0], Sign);
    case OpKind::kConvert:
      return ConvertTo(node.type.dtype, x[0]);
    case OpKind::kSelect:
      return Select(x[0], x[1], x[2]);
    default:
      break;
  }
  TWIN_CHECK(false, "not elementwise");
}

}  // namespace twinforge
