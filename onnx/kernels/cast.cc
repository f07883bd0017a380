// From one element type to another: Cast, CastLike, BitCast.
#include <charconv>
#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "onnx/kernels/kernel.h"
#include "onnx/tensor.h"

namespace twinforge {
namespace {

struct CastRule {
  ElementType to;
  bool saturate;
  std::string round_mode;  // of FLOAT8E8M0 alone
};

bool IsFloat8(ElementType type) {
  return type >= ElementType::kFloat8E4M3FN && type <= ElementType::kFloat8E5M2FNUZ;
}

double LargestOf(ElementType type) {
  switch (type) {
    case ElementType::kFloat8E4M3FN:
      return 448;
    case ElementType::kFloat8E4M3FNUZ:
      return 240;
    default:
      return 57344;  // both kinds of E5M2
  }
}

// A power of two not below (up), not above (down) or nearest to x; ties go up.
double ScaleOf(double x, const CastRule& rule) {
  constexpr double kLeast = 0x1p-127, kMost = 0x1p127;
  if (std::isnan(x)) return x;
  x = std::fabs(x);
  if (x > kMost || std::isinf(x)) return rule.saturate ? kMost : std::nan("");
  if (x < kLeast) return rule.saturate ? kLeast : std::nan("");
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);  // x = fraction * 2^exponent, 0.5 <= fraction < 1
  double scale = std::ldexp(1.0, exponent - 1);
  if (rule.round_mode == "up" && fraction > 0.5) scale *= 2;
  if (rule.round_mode == "nearest" && fraction >= 0.75) scale *= 2;
  return scale <= kMost ? scale : rule.saturate ? kMost : std::nan("");
}

double Prepared(double x, const CastRule& rule) {
  if (rule.to == ElementType::kFloat8E8M0) return ScaleOf(x, rule);
  if (IsFloat8(rule.to) && rule.saturate && !std::isnan(x)) {
    const double most = LargestOf(rule.to);
    return std::fmax(-most, std::fmin(most, x));
  }
  return x;
}

// "1.5", "NaN", "INF": the shortest digits that give the number back in its own type.
std::string NumberText(double x, ElementType type) {
  if (std::isnan(x)) return "NaN";
  if (std::isinf(x)) return x < 0 ? "-INF" : "INF";
  char text[512];
  const bool small = type != ElementType::kDouble;
  const std::to_chars_result end =
      small ? std::to_chars(text, text + sizeof(text), static_cast<float>(x), std::chars_format::fixed)
            : std::to_chars(text, text + sizeof(text), x, std::chars_format::fixed);
  std::string digits(text, end.ptr);
  return absl::StrContains(digits, '.') ? digits : digits + ".0";
}

std::vector<std::string> Texts(const OnnxTensor& x) {
  std::vector<std::string> texts;
  switch (x.carrier()) {
    case ElementCarrier::kDouble:
      for (const double v : Elements<double>(x)) texts.push_back(NumberText(v, x.type()));
      break;
    case ElementCarrier::kUint64:
      for (const uint64_t v : Elements<uint64_t>(x)) texts.push_back(absl::StrCat(v));
      break;
    default:
      for (const int64_t v : Elements<int64_t>(x)) {
        texts.push_back(x.type() != ElementType::kBool ? absl::StrCat(v) : v != 0 ? "True" : "False");
      }
  }
  return texts;
}

// Nothing where a text is no number.
std::optional<std::vector<double>> Numbers(const std::vector<std::string>& texts) {
  std::vector<double> numbers;
  for (const std::string& text : texts) {
    double value = 0;
    if (!absl::SimpleAtod(text, &value)) return std::nullopt;  // knows "+INF", "-inf" and "NaN" too
    numbers.push_back(value);
  }
  return numbers;
}

void CastTo(OpCall& c, const CastRule& rule) {
  const OnnxTensor& x = c.In(0);
  ONNX_EXPECT(c, x.carrier() != ElementCarrier::kComplex || x.type() == rule.to, "casts no complex numbers");
  if (x.type() == rule.to) return c.Out(0, x);
  if (rule.to == ElementType::kString) return c.Out(0, OnnxTensor(x.shape(), Texts(x)));
  ONNX_EXPECT(c, BytesInMemory(rule.to) > 0 && ElementTypeName(rule.to).substr(0, 7) != "COMPLEX",
              "casts to numbers");
  if (x.is_string()) {
    const std::optional<std::vector<double>> numbers = Numbers(x.strings());
    ONNX_EXPECT(c, numbers.has_value(), "a text is no number");
    std::vector<double> prepared = *numbers;
    for (double& v : prepared) v = Prepared(v, rule);
    return c.Out(0, TensorOf<double>(rule.to, x.shape(), prepared));
  }
  if (x.carrier() == ElementCarrier::kInt64 && !IsFloatingElement(rule.to)) {
    return c.Out(0, TensorOf<int64_t>(rule.to, x.shape(), Elements<int64_t>(x)));
  }
  if (x.carrier() == ElementCarrier::kUint64 && !IsFloatingElement(rule.to)) {
    return c.Out(0, TensorOf<uint64_t>(rule.to, x.shape(), Elements<uint64_t>(x)));
  }
  std::vector<double> values = Elements<double>(x);
  for (double& v : values) v = Prepared(v, rule);
  c.Out(0, TensorOf<double>(rule.to, x.shape(), values));
}

std::optional<ElementType> NamedType(OpCall& c) {
  // Until operator set 5 the type was a name.
  if (c.opset() < 6) {
    const std::string name = absl::AsciiStrToUpper(c.Str("to", ""));
    for (int code = 1; code < kElementTypeCount; ++code) {
      if (ElementTypeName(static_cast<ElementType>(code)) == name) return static_cast<ElementType>(code);
    }
    return std::nullopt;
  }
  const std::optional<ElementType> type = ElementTypeFromCode(c.Int("to", 0));
  return type && *type != ElementType::kUndefined ? type : std::nullopt;
}

void Cast(OpCall& c) {
  const std::optional<ElementType> to = NamedType(c);
  ONNX_EXPECT(c, to.has_value(), "names no element type to cast to");
  CastTo(c, {*to, c.Int("saturate", 1) != 0, c.Str("round_mode", "up")});
}

void CastLike(OpCall& c) {
  CastTo(c, {c.In(1).type(), c.Int("saturate", 1) != 0, c.Str("round_mode", "up")});
}

void BitCast(OpCall& c) {
  const std::optional<ElementType> to = NamedType(c);
  ONNX_EXPECT(c, to.has_value() && !c.In(0).is_string() && *to != ElementType::kString,
              "names no type of bits");
  ONNX_EXPECT(c, ElementBits(*to) == ElementBits(c.In(0).type()), "the two types differ in width");
  if (ElementBits(*to) >= 8) return c.Out(0, c.In(0).WithType(*to));
  // In memory sub-byte integers are sign-extended: take the code, and extend it anew.
  std::vector<int64_t> codes(static_cast<size_t>(c.In(0).count()));
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<int64_t>(c.In(0).bytes()[i]);
  const bool floats = IsFloatingElement(*to);
  OnnxTensor held = TensorOf<int64_t>(floats ? ElementType::kUint4 : *to, c.In(0).shape(), codes);
  c.Out(0, floats ? held.WithType(*to) : held);
}

constexpr KernelRow kRows[] = {{"Cast", Cast}, {"CastLike", CastLike}, {"BitCast", BitCast}};

}  // namespace

absl::Span<const KernelRow> CastKernels() { return kRows; }

}  // namespace twinforge
