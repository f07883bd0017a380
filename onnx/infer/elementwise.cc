// Element by element: shapes that stay or broadcast, and the arithmetic in which exporters compute shapes.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "onnx/infer/rule.h"

namespace twinforge {
namespace {

// ---- elements

// As `type` holds it: a number only within its range; a polynomial only where sizes fit.
KnownDim Held(const std::optional<ElementType>& type, KnownDim element) {
  if (!element || !type) return std::nullopt;
  const std::optional<int64_t> number = element->value();
  if (!number) {
    const bool wide = *type == ElementType::kInt64 || *type == ElementType::kInt32 ||
                      *type == ElementType::kUint64 || *type == ElementType::kUint32;
    return wide && (IsSignedElement(*type) || DimLeast(*element).value_or(-1) >= 0) ? element : std::nullopt;
  }
  if (*type == ElementType::kBool) return *number == 0 || *number == 1 ? element : std::nullopt;
  return *number >= LowestOf(*type) && *number <= HighestOf(*type) ? element : std::nullopt;
}

// Row-major places of `from`, broadcast to the number shape `to`; nothing where it does not.
std::vector<size_t> PlacesIn(const KnownDims& from, const KnownDims& to, int64_t count) {
  std::vector<size_t> places;
  if (from.size() > to.size()) return places;
  for (size_t d = 1; d <= from.size(); ++d) {
    if (!IsNumber(from[from.size() - d], 1) && from[from.size() - d] != to[to.size() - d]) return places;
  }
  for (int64_t k = 0; k < count; ++k) {
    int64_t rest = k, stride = 1, place = 0;
    for (size_t d = 0; d < to.size(); ++d) {
      const size_t axis = to.size() - 1 - d;
      const int64_t extent = *to[axis]->value(), i = rest % extent;
      rest /= extent;
      if (d >= from.size()) continue;
      const int64_t own = *from[from.size() - 1 - d]->value();
      place += own == 1 ? 0 : i * stride;
      stride *= own;
    }
    places.push_back(static_cast<size_t>(place));
  }
  return places;
}

using Combine = KnownDim (*)(const KnownDim& a, const KnownDim& b);

// Elements of output 0 from those of inputs a and b, once its type and shape are set.
void CombineElements(InferCall& c, int a_at, int b_at, Combine combine) {
  OnnxFact& out = c.Out(0);
  if (!HasElements(out.type)) return;
  const std::optional<KnownDims> a = c.ElementsOf(a_at), b = c.ElementsOf(b_at);
  const std::optional<int64_t> count = FewElements(out.shape);
  if (!a || !b || !count) return;
  const std::vector<size_t> in_a = PlacesIn(*c.In(a_at).shape, *out.shape, *count),
                            in_b = PlacesIn(*c.In(b_at).shape, *out.shape, *count);
  if (in_a.size() != in_b.size() || static_cast<int64_t>(in_a.size()) != *count) return;
  out.elements.emplace();
  for (int64_t k = 0; k < *count; ++k)
    out.elements->push_back(Held(out.type, combine((*a)[in_a[k]], (*b)[in_b[k]])));
}

KnownDim Truth(std::optional<bool> known) { return known ? KnownDim(Dim(*known ? 1 : 0)) : std::nullopt; }

// Whether a < b, for all sizes of the symbols.
std::optional<bool> IsLess(const KnownDim& a, const KnownDim& b) {
  const KnownDim difference = DimDifference(b, a);
  if (!difference) return std::nullopt;
  if (DimLeast(*difference).value_or(0) > 0) return true;
  if (DimMost(*difference).value_or(1) <= 0) return false;
  return std::nullopt;
}
std::optional<bool> Negated(std::optional<bool> known) {
  return known ? std::optional<bool>(!*known) : known;
}

KnownDim EqualOf(const KnownDim& a, const KnownDim& b) {
  if (a && b && *a == *b) return Dim(1);
  return DimsDiffer(a, b) ? KnownDim(Dim(0)) : std::nullopt;
}
KnownDim LessOf(const KnownDim& a, const KnownDim& b) { return Truth(IsLess(a, b)); }
KnownDim GreaterOf(const KnownDim& a, const KnownDim& b) { return Truth(IsLess(b, a)); }
KnownDim LessOrEqualOf(const KnownDim& a, const KnownDim& b) { return Truth(Negated(IsLess(b, a))); }
KnownDim GreaterOrEqualOf(const KnownDim& a, const KnownDim& b) { return Truth(Negated(IsLess(a, b))); }

// Towards zero, as integers divide.
KnownDim QuotientOf(const KnownDim& a, const KnownDim& b) {
  const int64_t divisor = b ? b->value().value_or(0) : 0;
  if (divisor != 0 && a && a->value())
    return divisor == -1 ? KnownDim() : KnownDim(Dim(*a->value() / divisor));
  if (const KnownDim exact = DimQuotient(a, b)) return exact;
  return divisor > 0 && a && DimLeast(*a).value_or(-1) >= 0 ? DimFloor(a, divisor) : std::nullopt;
}
KnownDim RemainderOf(const KnownDim& a, const KnownDim& b) {  // with the divisor's sign
  const std::optional<int64_t> divisor = b ? b->value() : std::nullopt;
  if (!divisor || *divisor <= 0) return std::nullopt;
  return DimDifference(a, DimProduct(DimFloor(a, *divisor), b));
}
KnownDim PowerOf(const KnownDim& a, const KnownDim& b) {
  const std::optional<int64_t> times = b ? b->value() : std::nullopt;
  if (!times || *times < 0 || *times > 62) return std::nullopt;
  KnownDim power = Dim(1);
  for (int64_t k = 0; k < *times; ++k) power = DimProduct(power, a);
  return power;
}
KnownDim AndOf(const KnownDim& a, const KnownDim& b) {
  if (IsNumber(a, 0) || IsNumber(b, 0)) return Dim(0);
  return IsNumber(a, 1) && IsNumber(b, 1) ? KnownDim(Dim(1)) : std::nullopt;
}
KnownDim OrOf(const KnownDim& a, const KnownDim& b) {
  if (IsNumber(a, 1) || IsNumber(b, 1)) return Dim(1);
  return IsNumber(a, 0) && IsNumber(b, 0) ? KnownDim(Dim(0)) : std::nullopt;
}
KnownDim Nothing(const KnownDim&, const KnownDim&) { return std::nullopt; }

// ---- one input

void SameRule(InferCall& c) { c.Like(0, 0); }

void BoolRule(InferCall& c) {
  c.Out(0).type = ElementType::kBool;
  c.Out(0).shape = c.In(0).shape;
}

template <typename Map>
void MapElements(InferCall& c, Map&& map) {
  OnnxFact& out = c.Out(0);
  if (!c.In(0).elements || !HasElements(out.type)) return;
  out.elements.emplace();
  for (const KnownDim& element : *c.In(0).elements) out.elements->push_back(Held(out.type, map(element)));
}

void NegRule(InferCall& c) {
  c.Like(0, 0);
  MapElements(c, [](const KnownDim& x) { return DimDifference(Dim(0), x); });
}
void AbsRule(InferCall& c) {
  c.Like(0, 0);
  MapElements(c, [](const KnownDim& x) { return DimMax(x, DimDifference(Dim(0), x)); });
}
void NotRule(InferCall& c) {
  BoolRule(c);
  MapElements(c, [](const KnownDim& x) { return DimDifference(Dim(1), x); });
}
void ClipRule(InferCall& c) {
  c.Like(0, 0);
  if (c.opset() < 11) return;
  const KnownDim low = c.Scalar(1), high = c.Scalar(2);
  const bool has_low = c.Has(1), has_high = c.Has(2);
  MapElements(c, [&](KnownDim x) {
    if (has_low) x = DimMax(x, low);
    return has_high ? DimMin(x, high) : x;
  });
}

// To `to`: numbers wrap as the evaluator wraps them, so only those that fit are kept.
void CastTo(InferCall& c, std::optional<ElementType> to) {
  OnnxFact& out = c.Out(0);
  out.type = to;
  out.shape = c.In(0).shape;
  if (!to || !HasElements(c.In(0).type)) return;
  const bool truth = *to == ElementType::kBool;
  MapElements(c, [truth](const KnownDim& x) -> KnownDim {
    if (!truth || !x) return x;
    if (IsNumber(x, 0)) return x;
    return DimsDiffer(x, Dim(0)) ? KnownDim(Dim(1)) : std::nullopt;
  });
}

void CastRule(InferCall& c) {
  // Until version 5 of the operator set the type was a word.
  if (c.opset() < 6) return CastTo(c, std::nullopt);
  CastTo(c, c.TypeAttr("to", std::nullopt));
}
void CastLikeRule(InferCall& c) { CastTo(c, c.In(1).type); }
void BitCastRule(InferCall& c) {
  c.Out(0).type = c.TypeAttr("to", std::nullopt);
  c.Out(0).shape = c.In(0).shape;
}

void DropoutRule(InferCall& c) {
  c.Like(0, 0);
  c.Out(1).type = c.opset() < 10 ? c.In(0).type : ElementType::kBool;
  c.Out(1).shape = c.In(0).shape;
}

// ---- several inputs

// Until operator set 7 the second input had to be made to fit the first.
void SetBroadcast(InferCall& c, int count) {
  OnnxFact& out = c.Out(0);
  out.shape = c.In(0).shape;
  for (int i = 1; i < count && c.opset() >= 7; ++i) out.shape = BroadcastKnown(c, out.shape, c.In(i).shape);
}

std::optional<ElementType> CommonType(InferCall& c, int first, int last) {
  std::optional<ElementType> type;
  for (int i = first; i <= last; ++i) {
    const std::optional<ElementType> own = c.In(i).type;
    if (type && own && *type != *own) {
      c.Fail(absl::StrCat("takes ", ElementTypeName(*type), " and ", ElementTypeName(*own)));
    }
    if (!type) type = own;
  }
  return type;
}

template <Combine combine>
void ArithmeticRule(InferCall& c) {
  c.Out(0).type = CommonType(c, 0, 1);
  SetBroadcast(c, 2);
  if (c.ok()) CombineElements(c, 0, 1, combine);
}
void PowRule(InferCall& c) {
  c.Out(0).type = c.In(0).type;
  SetBroadcast(c, 2);
  if (c.ok()) CombineElements(c, 0, 1, PowerOf);
}
void ModRule(InferCall& c) {
  c.Out(0).type = CommonType(c, 0, 1);
  SetBroadcast(c, 2);
  if (c.ok() && c.Int("fmod", 0) == 0) CombineElements(c, 0, 1, RemainderOf);
}
void ShiftRule(InferCall& c) {
  c.Out(0).type = c.In(0).type;
  SetBroadcast(c, 2);
}
template <Combine combine>
void CompareRule(InferCall& c) {
  CommonType(c, 0, 1);
  c.Out(0).type = ElementType::kBool;
  SetBroadcast(c, 2);
  if (c.ok()) CombineElements(c, 0, 1, combine);
}

void PReluRule(InferCall& c) { c.Like(0, 0); }

template <Combine combine>
void VariadicRule(InferCall& c) {
  c.Out(0).type = CommonType(c, 0, c.inputs() - 1);
  SetBroadcast(c, c.inputs());
  if (c.opset() < 8) c.Out(0).shape = c.In(0).shape;
  if (!c.ok() || c.inputs() > 2) return;
  if (c.inputs() == 1) c.Out(0).elements = c.In(0).elements;
  if (c.inputs() == 2) CombineElements(c, 0, 1, combine);
}

void WhereRule(InferCall& c) {
  OnnxFact& out = c.Out(0);
  out.type = CommonType(c, 1, 2);
  out.shape = BroadcastKnown(c, BroadcastKnown(c, c.In(0).shape, c.In(1).shape), c.In(2).shape);
  const std::optional<int64_t> count = FewElements(out.shape);
  const std::optional<KnownDims> which = c.ElementsOf(0), a = c.ElementsOf(1), b = c.ElementsOf(2);
  if (!c.ok() || !count || !which || !a || !b) return;
  const std::vector<size_t> at = PlacesIn(*c.In(0).shape, *out.shape, *count),
                            in_a = PlacesIn(*c.In(1).shape, *out.shape, *count),
                            in_b = PlacesIn(*c.In(2).shape, *out.shape, *count);
  out.elements.emplace();
  for (int64_t k = 0; k < *count; ++k) {
    const KnownDim &choice = (*which)[at[k]], &yes = (*a)[in_a[k]], &no = (*b)[in_b[k]];
    out.elements->push_back(IsNumber(choice, 1) ? yes : IsNumber(choice, 0) ? no : DimJoin(yes, no));
  }
}

void SwiGluRule(InferCall& c) {
  c.Out(0).type = CommonType(c, 0, 1);
  c.Out(0).shape = c.In(0).shape ? c.In(0).shape : c.In(1).shape;
}

// ---- quantisation

void QuantizeRule(InferCall& c) {
  c.Out(0).shape = c.In(0).shape;
  std::optional<ElementType> type = c.TypeAttr("output_dtype", std::nullopt);
  if (c.Int("output_dtype", 0) == 0) type = ElementType::kUint8;
  if (c.Has(2)) type = c.In(2).type;
  c.Out(0).type = type;
}
void DequantizeRule(InferCall& c) {
  c.Out(0).shape = c.In(0).shape;
  c.Out(0).type = c.Int("output_dtype", 0) != 0 ? c.TypeAttr("output_dtype", std::nullopt)
                  : c.opset() < 19              ? std::optional<ElementType>(ElementType::kFloat)
                                                : c.In(1).type;
}
void DynamicQuantizeRule(InferCall& c) {
  c.Out(0).type = c.Out(2).type = ElementType::kUint8;
  c.Out(0).shape = c.In(0).shape;
  c.Out(1).type = ElementType::kFloat;
  c.Out(1).shape = c.Out(2).shape = KnownDims();
}

constexpr char kMs[] = "com.microsoft", kMl[] = "ai.onnx.ml";

void FloatRule(InferCall& c) {
  c.Out(0).type = ElementType::kFloat;
  c.Out(0).shape = c.In(0).shape;
}

constexpr InferRow kRows[] = {
    {"Sign", SameRule},
    {"Ceil", SameRule},
    {"Floor", SameRule},
    {"Round", SameRule},
    {"Sqrt", SameRule},
    {"Exp", SameRule},
    {"Log", SameRule},
    {"Sin", SameRule},
    {"Cos", SameRule},
    {"Tan", SameRule},
    {"Asin", SameRule},
    {"Acos", SameRule},
    {"Atan", SameRule},
    {"Sinh", SameRule},
    {"Cosh", SameRule},
    {"Tanh", SameRule},
    {"Asinh", SameRule},
    {"Acosh", SameRule},
    {"Atanh", SameRule},
    {"Erf", SameRule},
    {"Reciprocal", SameRule},
    {"Sigmoid", SameRule},
    {"Softplus", SameRule},
    {"Softsign", SameRule},
    {"Mish", SameRule},
    {"HardSwish", SameRule},
    {"Relu", SameRule},
    {"LeakyRelu", SameRule},
    {"Elu", SameRule},
    {"Celu", SameRule},
    {"Selu", SameRule},
    {"HardSigmoid", SameRule},
    {"Swish", SameRule},
    {"Gelu", SameRule},
    {"ThresholdedRelu", SameRule},
    {"Shrink", SameRule},
    {"BitwiseNot", SameRule},
    {"Softmax", SameRule},
    {"LogSoftmax", SameRule},
    {"Hardmax", SameRule},
    {"LpNormalization", SameRule},
    {"LRN", SameRule},
    {"MeanVarianceNormalization", SameRule},
    {"InstanceNormalization", SameRule},
    {"GroupNormalization", SameRule},
    {"CumSum", SameRule},
    {"CumProd", SameRule},
    {"Trilu", SameRule},
    {"ReverseSequence", SameRule},
    {"Binarizer", SameRule, kMl},
    {"Imputer", SameRule, kMl},
    {"Scaler", FloatRule, kMl},
    {"Normalizer", FloatRule, kMl},
    {"BiasGelu", SameRule, kMs, 2},
    {"FastGelu", SameRule, kMs, 1},
    {"Gelu", SameRule, kMs, 1},
    {"QuickGelu", SameRule, kMs, 1},
    {"IsNaN", BoolRule},
    {"IsInf", BoolRule},
    {"RegexFullMatch", BoolRule},
    {"Neg", NegRule},
    {"Abs", AbsRule},
    {"Not", NotRule},
    {"Clip", ClipRule},
    {"Cast", CastRule},
    {"CastLike", CastLikeRule},
    {"BitCast", BitCastRule},
    {"Dropout", DropoutRule},
    {"Add", ArithmeticRule<DimSum>},
    {"Sub", ArithmeticRule<DimDifference>},
    {"Mul", ArithmeticRule<DimProduct>},
    {"Div", ArithmeticRule<QuotientOf>},
    {"Mod", ModRule},
    {"Pow", PowRule},
    {"BitwiseAnd", ArithmeticRule<Nothing>},
    {"BitwiseOr", ArithmeticRule<Nothing>},
    {"BitwiseXor", ArithmeticRule<Nothing>},
    {"StringConcat", ArithmeticRule<Nothing>},
    {"BitShift", ShiftRule},
    {"PRelu", PReluRule},
    {"Equal", CompareRule<EqualOf>},
    {"Greater", CompareRule<GreaterOf>},
    {"Less", CompareRule<LessOf>},
    {"GreaterOrEqual", CompareRule<GreaterOrEqualOf>},
    {"LessOrEqual", CompareRule<LessOrEqualOf>},
    {"And", CompareRule<AndOf>},
    {"Or", CompareRule<OrOf>},
    {"Xor", CompareRule<Nothing>},
    {"Where", WhereRule},
    {"Max", VariadicRule<DimMax>},
    {"Min", VariadicRule<DimMin>},
    {"Sum", VariadicRule<Nothing>},
    {"Mean", VariadicRule<Nothing>},
    {"SwiGLU", SwiGluRule},
    {"QuantizeLinear", QuantizeRule},
    {"DequantizeLinear", DequantizeRule},
    {"DynamicQuantizeLinear", DynamicQuantizeRule},
};

}  // namespace

absl::Span<const InferRow> ElementwiseRules() { return kRows; }

}  // namespace twinforge
