// Elements of several inputs that broadcast together.
#include <cmath>

#include "onnx/kernels/kernel.h"
#include "onnx/kernels/places.h"
#include "onnx/tensor.h"

namespace twinforge {
namespace {

// Before operator set 7 the second input broadcast only when asked to, its axes lying from `axis` on.
OnnxTensor LegacyAligned(OpCall& c, const OnnxTensor& a, const OnnxTensor& b) {
  if (!c.HasAttr("axis") || c.Int("broadcast", 0) == 0) return b;
  const int64_t axis = c.Axis(c.Int("axis", 0), std::max<int64_t>(a.rank(), 1));
  if (axis + b.rank() > a.rank()) {
    c.Fail("the second input does not fit from its axis on");
    return b;
  }
  Shape shape = b.shape();
  shape.resize(static_cast<size_t>(a.rank() - axis), 1);
  return b.WithShape(shape);
}

// The two inputs and where their elements meet.
struct Pair {
  OnnxTensor a, b;
  Shape shape;
  std::vector<int64_t> at_a, at_b;
};

Pair PairOf(OpCall& c) {
  Pair p{c.In(0), c.In(1), {}, {}, {}};
  if (c.node().domain.empty() && c.opset() < 7) p.b = LegacyAligned(c, p.a, p.b);
  const std::optional<Shape> shape = BroadcastShape(p.a.shape(), p.b.shape());
  if (!shape) {
    c.Fail("shapes " + ShapeText(p.a.shape()) + " and " + ShapeText(p.b.shape()) + " do not broadcast");
  } else if (c.Affordable(*shape)) {
    p.shape = *shape;
    p.at_a = BroadcastPlaces(p.a.shape(), p.shape);
    p.at_b = BroadcastPlaces(p.b.shape(), p.shape);
  }
  return p;
}

// `f` of pairs in the carrier of both; T in, U out, as `result` (kUndefined: the inputs' type).
template <typename F>
void Combine(OpCall& c, ElementType result, F&& f) {
  ONNX_EXPECT(c, c.In(0).type() == c.In(1).type(), "its inputs are of two types");
  const Pair p = PairOf(c);
  ONNX_EXPECT(c, true, "");
  const bool numbers = WithCarrier(p.a.type(), [&](auto zero) {
    using T = decltype(zero);
    using U = decltype(f(zero, zero));
    const std::vector<T> a = Elements<T>(p.a), b = Elements<T>(p.b);
    std::vector<std::conditional_t<std::is_same_v<U, bool>, int64_t, U>> y(p.at_a.size());
    for (size_t k = 0; k < y.size(); ++k) y[k] = f(a[p.at_a[k]], b[p.at_b[k]]);
    c.Out(0, TensorOf(result == ElementType::kUndefined ? p.a.type() : result, p.shape, y));
  });
  ONNX_EXPECT(c, numbers, "takes numbers");
}

// Wraps as the type does: arithmetic in uint64_t, whose overflow is defined.
template <typename T>
T Wrapping(uint64_t bits) {
  return static_cast<T>(bits);
}

void Add(OpCall& c) {
  Combine(c, ElementType::kUndefined, [](auto a, auto b) {
    using T = decltype(a);
    if constexpr (std::is_same_v<T, double>) return a + b;
    return Wrapping<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  });
}

void Sub(OpCall& c) {
  Combine(c, ElementType::kUndefined, [](auto a, auto b) {
    using T = decltype(a);
    if constexpr (std::is_same_v<T, double>) return a - b;
    return Wrapping<T>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
  });
}

void Mul(OpCall& c) {
  Combine(c, ElementType::kUndefined, [](auto a, auto b) {
    using T = decltype(a);
    if constexpr (std::is_same_v<T, double>) return a * b;
    return Wrapping<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  });
}

// Integers: towards zero; by zero, which the standard leaves open, 0.
void Div(OpCall& c) {
  Combine(c, ElementType::kUndefined, [](auto a, auto b) {
    using T = decltype(a);
    if constexpr (std::is_same_v<T, double>) return a / b;
    if (b == T{0}) return T{0};
    if (b == static_cast<T>(-1) && std::is_same_v<T, int64_t>)
      return Wrapping<T>(0 - static_cast<uint64_t>(a));
    return static_cast<T>(a / b);
  });
}

// fmod 0: the sign of the divisor, as Python's; fmod 1: of the dividend, as C's.
void Mod(OpCall& c) {
  const bool as_c = c.Int("fmod", 0) != 0;
  Combine(c, ElementType::kUndefined, [as_c](auto a, auto b) {
    using T = decltype(a);
    if constexpr (std::is_same_v<T, double>) {
      const double r = std::fmod(a, b);
      if (!as_c && r == 0) return std::copysign(r, b);
      return as_c || (r < 0) == (b < 0) ? r : r + b;
    } else {
      if (b == T{0} || (std::is_same_v<T, int64_t> && b == static_cast<T>(-1))) return T{0};
      const T r = a % b;
      return as_c || r == T{0} || (r < T{0}) == (b < T{0}) ? r : static_cast<T>(r + b);
    }
  });
}

int64_t IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  uint64_t result = 1;
  for (uint64_t square = static_cast<uint64_t>(base); exponent > 0; exponent >>= 1, square *= square) {
    if ((exponent & 1) != 0) result *= square;
  }
  return static_cast<int64_t>(result);
}

// The exponent may be of another type; the result is of the base's.
void Power(OpCall& c) {
  const Pair p = PairOf(c);
  ONNX_EXPECT(c, !p.a.is_string() && !p.b.is_string(), "takes numbers");
  if (IsIntegerElement(p.a.type()) && IsIntegerElement(p.b.type())) {
    const std::vector<int64_t> a = Elements<int64_t>(p.a), b = Elements<int64_t>(p.b);
    std::vector<int64_t> y(p.at_a.size());
    for (size_t k = 0; k < y.size(); ++k) y[k] = IntegerPower(a[p.at_a[k]], b[p.at_b[k]]);
    return c.Out(0, TensorOf<int64_t>(p.a.type(), p.shape, y));
  }
  const std::vector<double> a = Elements<double>(p.a), b = Elements<double>(p.b);
  std::vector<double> y(p.at_a.size());
  for (size_t k = 0; k < y.size(); ++k) y[k] = std::pow(a[p.at_a[k]], b[p.at_b[k]]);
  c.Out(0, TensorOf<double>(p.a.type(), p.shape, y));
}

void Equal(OpCall& c) {
  if (!c.In(0).is_string() || !c.In(1).is_string()) {
    return Combine(c, ElementType::kBool, [](auto a, auto b) { return a == b; });
  }
  const Pair p = PairOf(c);
  ONNX_EXPECT(c, true, "");
  std::vector<int64_t> y(p.at_a.size());
  for (size_t k = 0; k < y.size(); ++k) y[k] = p.a.strings()[p.at_a[k]] == p.b.strings()[p.at_b[k]] ? 1 : 0;
  c.Out(0, TensorOf<int64_t>(ElementType::kBool, p.shape, y));
}

void Greater(OpCall& c) {
  Combine(c, ElementType::kBool, [](auto a, auto b) { return a > b; });
}
void Less(OpCall& c) {
  Combine(c, ElementType::kBool, [](auto a, auto b) { return a < b; });
}
void GreaterOrEqual(OpCall& c) {
  Combine(c, ElementType::kBool, [](auto a, auto b) { return a >= b; });
}
void LessOrEqual(OpCall& c) {
  Combine(c, ElementType::kBool, [](auto a, auto b) { return a <= b; });
}

// And, Or, Xor on bool and BitwiseAnd, ... on integers are the same on bits.
template <typename F>
void CombineBits(OpCall& c, F&& f) {
  ONNX_EXPECT(c, c.In(0).carrier() != ElementCarrier::kDouble, "takes no floats");
  Combine(c, ElementType::kUndefined, [&](auto a, auto b) {
    return static_cast<decltype(a)>(f(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
  });
}
void BitsAnd(OpCall& c) {
  CombineBits(c, [](uint64_t a, uint64_t b) { return a & b; });
}
void BitsOr(OpCall& c) {
  CombineBits(c, [](uint64_t a, uint64_t b) { return a | b; });
}
void BitsXor(OpCall& c) {
  CombineBits(c, [](uint64_t a, uint64_t b) { return a ^ b; });
}

void BitShift(OpCall& c) {
  const std::string direction = c.Str("direction", "");
  ONNX_EXPECT(c, direction == "LEFT" || direction == "RIGHT", "direction is neither LEFT nor RIGHT");
  const bool left = direction == "LEFT";
  const uint64_t width = static_cast<uint64_t>(ElementBits(c.In(0).type()));
  const bool sign = IsSignedElement(c.In(0).type());
  // By the width or more, or by a negative number: nothing is left but the sign.
  CombineBits(c, [=](uint64_t a, uint64_t b) -> uint64_t {
    const bool far = b >= width;
    if (left) return far ? 0 : a << b;
    if (sign) return static_cast<uint64_t>(static_cast<int64_t>(a) >> (far ? 63 : b));
    return far ? 0 : a >> b;
  });
}

void PRelu(OpCall& c) {
  ONNX_EXPECT(c, BroadcastsTo(c.In(1).shape(), c.In(0).shape()) || c.opset() < 7,
              "the slope does not broadcast");
  // Before operator set 7 a slope per channel had one axis.
  OnnxTensor slope = c.In(1);
  if (c.opset() < 7 && slope.rank() == 1 && c.In(0).rank() > 2) {
    Shape shape(static_cast<size_t>(c.In(0).rank() - 1), 1);
    shape[0] = slope.count();
    slope = slope.WithShape(shape);
    ONNX_EXPECT(c, BroadcastsTo(slope.shape(), c.In(0).shape()), "the slope does not broadcast");
  }
  const std::vector<int64_t> at = BroadcastPlaces(slope.shape(), c.In(0).shape());
  std::vector<double> x = c.Doubles(0);
  ONNX_EXPECT(c, !slope.is_string(), "takes numbers");
  const std::vector<double> s = Elements<double>(slope);
  for (size_t k = 0; k < x.size(); ++k) x[k] = x[k] < 0 ? x[k] * s[at[k]] : x[k];
  c.Out(0, TensorOf<double>(c.In(0).type(), c.In(0).shape(), x));
}

void Where(OpCall& c) {
  ONNX_EXPECT(c, c.In(0).type() == ElementType::kBool, "the condition is not bool");
  ONNX_EXPECT(c, c.In(1).type() == c.In(2).type(), "its inputs are of two types");
  const Shape shape = BroadcastInputs(c, 0, 2);
  ONNX_EXPECT(c, true, "");
  const std::vector<int64_t> condition = Elements<int64_t>(c.In(0));
  const std::vector<int64_t> at = BroadcastPlaces(c.In(0).shape(), shape);
  std::vector<int64_t> from = BroadcastPlaces(c.In(1).shape(), shape);
  const std::vector<int64_t> other = BroadcastPlaces(c.In(2).shape(), shape);
  std::vector<int32_t> which(from.size());
  for (size_t k = 0; k < from.size(); ++k) {
    which[k] = condition[at[k]] != 0 ? 0 : 1;
    if (which[k] == 1) from[k] = other[k];
  }
  c.Out(0, TakeElements({c.In(1), c.In(2)}, shape, which, from));
}

// Folds any number of inputs, left to right.
template <typename F>
void FoldInputs(OpCall& c, F&& f) {
  for (int i = 0; i < c.inputs(); ++i) {
    ONNX_EXPECT(c, c.Has(i) && c.In(i).type() == c.In(0).type(), "an input is left out, or of another type");
  }
  const Shape shape = BroadcastInputs(c, 0, c.inputs() - 1);
  ONNX_EXPECT(c, true, "");
  const bool numbers = WithCarrier(c.In(0).type(), [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> y;
    for (int i = 0; i < c.inputs(); ++i) {
      const std::vector<T> x = Elements<T>(c.In(i));
      const std::vector<int64_t> at = BroadcastPlaces(c.In(i).shape(), shape);
      if (i == 0) y.resize(at.size());
      for (size_t k = 0; k < y.size(); ++k) y[k] = i == 0 ? x[at[k]] : f(y[k], x[at[k]]);
    }
    if (c.op() == "Mean") {
      for (T& v : y) v = v / static_cast<T>(c.inputs());
    }
    c.Out(0, TensorOf<T>(c.In(0).type(), shape, y));
  });
  ONNX_EXPECT(c, numbers, "takes numbers");
}

// NaN wins, as in numpy's maximum and minimum.
void Max(OpCall& c) {
  FoldInputs(c, [](auto a, auto b) { return a > b || a != a ? a : b; });
}
void Min(OpCall& c) {
  FoldInputs(c, [](auto a, auto b) { return a < b || a != a ? a : b; });
}
void Sum(OpCall& c) {
  FoldInputs(c, [](auto a, auto b) { return a + b; });
}

constexpr KernelRow kRows[] = {
    {"Add", Add},
    {"Sub", Sub},
    {"Mul", Mul},
    {"Div", Div},
    {"Mod", Mod},
    {"Pow", Power},
    {"Equal", Equal},
    {"Greater", Greater},
    {"Less", Less},
    {"GreaterOrEqual", GreaterOrEqual},
    {"LessOrEqual", LessOrEqual},
    {"And", BitsAnd},
    {"Or", BitsOr},
    {"Xor", BitsXor},
    {"BitwiseAnd", BitsAnd},
    {"BitwiseOr", BitsOr},
    {"BitwiseXor", BitsXor},
    {"BitShift", BitShift},
    {"PRelu", PRelu},
    {"Where", Where},
    {"Max", Max},
    {"Min", Min},
    {"Sum", Sum},
    {"Mean", Sum},
};

}  // namespace

absl::Span<const KernelRow> BinaryKernels() { return kRows; }

}  // namespace twinforge
