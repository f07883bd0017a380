// One element in, one out.
#include <cmath>

#include "onnx/kernels/kernel.h"
#include "onnx/tensor.h"

namespace twinforge {
namespace {

// `f` of every element, in double; the type stays.
template <typename F>
void MapDoubles(OpCall& c, F&& f) {
  std::vector<double> x = c.Doubles(0);
  ONNX_EXPECT(c, true, "");
  for (double& v : x) v = f(v);
  c.Out(0, TensorOf<double>(c.In(0).type(), c.In(0).shape(), x));
}

// `f` of every element in its type's carrier.
template <typename F>
void MapCarrier(OpCall& c, F&& f) {
  const OnnxTensor& in = c.In(0);
  const bool numbers = WithCarrier(in.type(), [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> x = Elements<T>(in);
    for (T& v : x) v = f(v);
    c.Out(0, TensorOf<T>(in.type(), in.shape(), x));
  });
  ONNX_EXPECT(c, numbers, "takes numbers");
}

template <typename F>
void MapToBool(OpCall& c, F&& f) {
  const std::vector<double> x = c.Doubles(0);
  ONNX_EXPECT(c, true, "");
  std::vector<int64_t> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = f(x[i]) ? 1 : 0;
  c.Out(0, TensorOf<int64_t>(ElementType::kBool, c.In(0).shape(), y));
}

double SigmoidOf(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }
double SoftplusOf(double x) { return std::log1p(std::exp(-std::fabs(x))) + (x > 0 ? x : 0); }

#define ONNX_UNARY(Name, expression)                    \
  void Name(OpCall& c) {                                \
    MapDoubles(c, [](double x) { return expression; }); \
  }
ONNX_UNARY(Ceil, std::ceil(x))
ONNX_UNARY(Floor, std::floor(x))
ONNX_UNARY(Round, std::nearbyint(x))  // ties to even
ONNX_UNARY(Sqrt, std::sqrt(x))
ONNX_UNARY(Exp, std::exp(x))
ONNX_UNARY(Log, std::log(x))
ONNX_UNARY(Sin, std::sin(x))
ONNX_UNARY(Cos, std::cos(x))
ONNX_UNARY(Tan, std::tan(x))
ONNX_UNARY(Asin, std::asin(x))
ONNX_UNARY(Acos, std::acos(x))
ONNX_UNARY(Atan, std::atan(x))
ONNX_UNARY(Sinh, std::sinh(x))
ONNX_UNARY(Cosh, std::cosh(x))
ONNX_UNARY(Tanh, std::tanh(x))
ONNX_UNARY(Asinh, std::asinh(x))
ONNX_UNARY(Acosh, std::acosh(x))
ONNX_UNARY(Atanh, std::atanh(x))
ONNX_UNARY(Erf, std::erf(x))
ONNX_UNARY(Reciprocal, 1 / x)
ONNX_UNARY(Sigmoid, SigmoidOf(x))
ONNX_UNARY(Softplus, SoftplusOf(x))
ONNX_UNARY(Softsign, x / (1 + std::fabs(x)))
ONNX_UNARY(Mish, x* std::tanh(SoftplusOf(x)))
ONNX_UNARY(HardSwish, x* std::fmax(0, std::fmin(1, x / 6 + 0.5)))
#undef ONNX_UNARY

void Abs(OpCall& c) {
  MapCarrier(c, [](auto x) {
    using T = decltype(x);
    if constexpr (std::is_same_v<T, double>) return std::fabs(x);
    if constexpr (std::is_same_v<T, int64_t>) return static_cast<T>(x < 0 ? 0 - static_cast<uint64_t>(x) : x);
    return x;
  });
}

void Neg(OpCall& c) {
  MapCarrier(c, [](auto x) {
    if constexpr (std::is_same_v<decltype(x), double>) return -x;
    return static_cast<decltype(x)>(0 - static_cast<uint64_t>(x));
  });
}

void Sign(OpCall& c) {
  MapCarrier(c, [](auto x) {
    using T = decltype(x);
    if constexpr (std::is_same_v<T, double>) {
      if (std::isnan(x)) return x;
    }
    if (x == T{0}) return T{0};
    return x > T{0} ? T{1} : static_cast<T>(-1);
  });
}

void Relu(OpCall& c) {
  MapCarrier(c, [](auto x) { return x < decltype(x){0} ? decltype(x){0} : x; });
}

void LeakyRelu(OpCall& c) {
  const double alpha = c.Float("alpha", 0.01f);
  MapDoubles(c, [=](double x) { return x < 0 ? alpha * x : x; });
}

void Elu(OpCall& c) {
  const double alpha = c.Float("alpha", 1);
  MapDoubles(c, [=](double x) { return x < 0 ? alpha * std::expm1(x) : x; });
}

void Celu(OpCall& c) {
  const double alpha = c.Float("alpha", 1);
  ONNX_EXPECT(c, alpha != 0, "alpha is 0");
  MapDoubles(c, [=](double x) { return std::fmax(0, x) + std::fmin(0, alpha * std::expm1(x / alpha)); });
}

void Selu(OpCall& c) {
  const bool old = c.opset() < 6;
  const double alpha = c.Float("alpha", old ? 1.6732f : 1.67326319217681884765625);
  const double gamma = c.Float("gamma", old ? 1.0507f : 1.05070102214813232421875);
  MapDoubles(c, [=](double x) { return gamma * (x > 0 ? x : alpha * std::expm1(x)); });
}

void HardSigmoid(OpCall& c) {
  const double alpha = c.Float("alpha", 0.2f), beta = c.Float("beta", 0.5);
  MapDoubles(c, [=](double x) { return std::fmax(0, std::fmin(1, alpha * x + beta)); });
}

void Swish(OpCall& c) {
  const double alpha = c.Float("alpha", 1);
  MapDoubles(c, [=](double x) { return x * SigmoidOf(alpha * x); });
}

void Gelu(OpCall& c) {
  const std::string approximate = c.Str("approximate", "none");
  ONNX_EXPECT(c, approximate == "none" || approximate == "tanh", "approximate is neither none nor tanh");
  if (approximate == "none")
    return MapDoubles(c, [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); });
  const double k = std::sqrt(2 / M_PI);
  MapDoubles(c, [=](double x) { return 0.5 * x * (1 + std::tanh(k * (x + 0.044715 * x * x * x))); });
}

void ThresholdedRelu(OpCall& c) {
  const double alpha = c.Float("alpha", 1);
  MapDoubles(c, [=](double x) { return x > alpha ? x : 0; });
}

void Shrink(OpCall& c) {
  const double bias = c.Float("bias", 0), lambd = c.Float("lambd", 0.5);
  MapDoubles(c, [=](double x) { return x < -lambd ? x + bias : x > lambd ? x - bias : 0; });
}

void IsNan(OpCall& c) {
  MapToBool(c, [](double x) { return std::isnan(x); });
}

void IsInf(OpCall& c) {
  const bool negative = c.Int("detect_negative", 1) != 0, positive = c.Int("detect_positive", 1) != 0;
  MapToBool(c, [=](double x) { return std::isinf(x) && (x < 0 ? negative : positive); });
}

void Not(OpCall& c) {
  MapToBool(c, [](double x) { return x == 0; });
}

void BitwiseNot(OpCall& c) {
  ONNX_EXPECT(c, IsIntegerElement(c.In(0).type()), "takes integers");
  std::vector<int64_t> x = c.Ints(0);
  for (int64_t& v : x) v = ~v;
  c.Out(0, TensorOf<int64_t>(c.In(0).type(), c.In(0).shape(), x));
}

// Bounds are inputs since operator set 11, attributes before.
void Clip(OpCall& c) {
  const OnnxTensor& in = c.In(0);
  for (int i = 1; i <= 2; ++i) {
    ONNX_EXPECT(c, !c.Has(i) || (c.In(i).count() == 1 && c.In(i).type() == in.type()),
                "a bound is no scalar of the type");
  }
  const bool numbers = WithCarrier(in.type(), [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> x = Elements<T>(in);
    const bool low = c.opset() < 11 ? c.HasAttr("min") : c.Has(1);
    const bool high = c.opset() < 11 ? c.HasAttr("max") : c.Has(2);
    const T least = !low ? T{} : c.opset() < 11 ? static_cast<T>(c.Float("min", 0)) : Elements<T>(c.In(1))[0];
    const T most = !high ? T{} : c.opset() < 11 ? static_cast<T>(c.Float("max", 0)) : Elements<T>(c.In(2))[0];
    for (T& v : x) {
      if (low && v < least) v = least;
      if (high && v > most) v = most;
    }
    c.Out(0, TensorOf<T>(in.type(), in.shape(), x));
  });
  ONNX_EXPECT(c, numbers, "takes numbers");
}

constexpr KernelRow kRows[] = {
    {"Abs", Abs},
    {"Neg", Neg},
    {"Sign", Sign},
    {"Ceil", Ceil},
    {"Floor", Floor},
    {"Round", Round},
    {"Sqrt", Sqrt},
    {"Exp", Exp},
    {"Log", Log},
    {"Sin", Sin},
    {"Cos", Cos},
    {"Tan", Tan},
    {"Asin", Asin},
    {"Acos", Acos},
    {"Atan", Atan},
    {"Sinh", Sinh},
    {"Cosh", Cosh},
    {"Tanh", Tanh},
    {"Asinh", Asinh},
    {"Acosh", Acosh},
    {"Atanh", Atanh},
    {"Erf", Erf},
    {"Reciprocal", Reciprocal},
    {"Sigmoid", Sigmoid},
    {"Softplus", Softplus},
    {"Softsign", Softsign},
    {"Mish", Mish},
    {"HardSwish", HardSwish},
    {"Relu", Relu},
    {"LeakyRelu", LeakyRelu},
    {"Elu", Elu},
    {"Celu", Celu},
    {"Selu", Selu},
    {"HardSigmoid", HardSigmoid},
    {"Swish", Swish},
    {"Gelu", Gelu},
    {"ThresholdedRelu", ThresholdedRelu},
    {"Shrink", Shrink},
    {"IsNaN", IsNan},
    {"IsInf", IsInf},
    {"Not", Not},
    {"BitwiseNot", BitwiseNot},
    {"Clip", Clip},
};

}  // namespace

absl::Span<const KernelRow> UnaryKernels() { return kRows; }

}  // namespace twinforge
