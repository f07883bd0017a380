// Elementwise operators: numbers become factors, known tensors become coefficients or masks, terms meet
// terms.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "importers/onnx/rules.h"
#include "onnx/onnx-ml.pb.h"
#include "weights/build.h"

namespace twinforge {
namespace {

// ---- a flow and a number

bool FlowTimes(RaiseCall& c, const Flow& x, double factor) {
  const Term& term = c.trace.term(x);
  if (term.kind == TermKind::kEmbed && x.plain()) {
    Term scaled = term;
    scaled.number *= factor;
    Flow flow = c.New(std::move(scaled));
    flow.shape = x.shape;
    return c.Out(0, std::move(flow));
  }
  Flow flow = x;
  flow.factor *= factor;
  return c.Out(0, std::move(flow));
}

bool FlowPlus(RaiseCall& c, const Flow& x, double number) {
  if (number == 0) return c.Out(0, x);
  return c.Emit(Term{.kind = TermKind::kAddNumber, .shape = x.shape, .in = {x}, .number = number});
}

bool FlowPower(RaiseCall& c, const Flow& x, double power) {
  if (power == 1) return c.Out(0, x);
  if (power == 2) return c.Emit(Term{.kind = TermKind::kMul, .shape = x.shape, .in = {x, x}});
  const Term root{.kind = TermKind::kUnary, .shape = x.shape, .in = {x}, .word = "Sqrt"};
  if (power == 0.5) return c.Emit(root);
  if (power == -0.5) {
    const Flow under = c.New(root);
    return c.Emit(Term{.kind = TermKind::kUnary, .shape = x.shape, .in = {under}, .word = "Reciprocal"});
  }
  if (power == 3) return c.Emit(Term{.kind = TermKind::kUnary, .shape = x.shape, .in = {x}, .word = "Cube"});
  return c.Miss(absl::StrCat("a power of ", power));
}

// ---- a flow and a known tensor

bool FlowTimesKnown(RaiseCall& c, const Flow& x, const OnnxTensor& known, bool divided) {
  const std::optional<Shape> shape = MetShape(x.shape, known.shape());
  if (!shape || !IsFloatingElement(known.type())) return c.Miss("multiplied with a tensor of another shape");
  const std::vector<double> numbers = Elements<double>(known);
  Flow factors{.term = 0, .shape = known.shape()};
  factors.parts[0].coef = std::make_shared<const std::vector<double>>(numbers);
  const Flow wide = BroadcastFlow(factors, *shape);
  Flow result = BroadcastFlow(x, *shape);
  for (FlowPart& part : result.parts) {
    std::vector<double> coef(static_cast<size_t>(result.count()));
    for (int64_t i = 0; i < result.count(); ++i) {
      const double by = CoefAt(wide.parts[0], i);
      coef[i] = CoefAt(part, i) * (divided ? 1 / by : by);
    }
    part.coef = std::make_shared<const std::vector<double>>(std::move(coef));
  }
  return c.Out(0, std::move(result));
}

bool FlowPlusKnown(RaiseCall& c, const Flow& x, const OnnxTensor& known, double sign, int rest) {
  const std::optional<Shape> shape = MetShape(x.shape, known.shape());
  if (!shape || !IsFloatingElement(known.type())) return c.Miss("added to a tensor of another shape");
  std::vector<double> numbers = Elements<double>(known);
  if (std::all_of(numbers.begin(), numbers.end(), [](double v) { return v == 0; }))
    return c.Out(0, BroadcastFlow(x, *shape));
  for (double& number : numbers) number *= sign;
  return c.Emit(Term{.kind = TermKind::kAddKnown,
                     .shape = *shape,
                     .in = {BroadcastFlow(x, *shape)},
                     .known = TensorOf<double>(ElementType::kDouble, known.shape(), numbers),
                     .numbers = c.In(rest).numbers});
}

// ---- a flow and a weight

// Features of the last axis, if `weight` is a vector along it.
bool AlongLastAxis(const Flow& x, const WeightPtr& weight) {
  return !x.shape.empty() && weight->element_count() == x.shape.back() &&
         (weight->rank() == 0 || weight->shape().back() == x.shape.back());
}

WeightPtr AsVector(const WeightPtr& weight) { return Reshape(weight, {weight->element_count()}); }

// The scale of a norm: w, or 1 + w.
bool ScaleNorm(RaiseCall& c, const Flow& x, const WeightPtr& weight) {
  Term norm = c.trace.term(x);
  if (norm.kind != TermKind::kNorm || norm.kernel != nullptr || norm.width != weight->element_count() ||
      !AlongLastAxis(x, weight) || x.factor != 1)
    return false;
  norm.kernel = AsVector(weight);
  Flow flow = c.New(std::move(norm));
  flow.shape = x.shape;
  flow.parts = x.parts;
  return c.Out(0, std::move(flow));
}

bool AddBias(RaiseCall& c, const Flow& x, const WeightPtr& weight) {
  Term term = c.trace.term(x);
  const bool linear = term.kind == TermKind::kLinear && x.whole() && x.shape.back() == c.trace.Width(x.term);
  const bool norm = term.kind == TermKind::kNorm && term.word == "layer" && term.kernel != nullptr &&
                    term.width == weight->element_count();
  if (!(linear || norm) || term.bias != nullptr || x.factor != 1 || !AlongLastAxis(x, weight)) return false;
  term.bias = AsVector(weight);
  Flow flow = c.New(std::move(term));
  flow.shape = x.shape;
  flow.parts = x.parts;
  return c.Out(0, std::move(flow));
}

// ---- two flows

// Both over one term: a longer combination.
std::optional<Flow> Combined(const Flow& a, const Flow& b, double sign) {
  Flow sum{.term = a.term, .shape = a.shape};
  sum.parts.clear();
  const auto take = [&](const Flow& flow, double by) {
    for (const FlowPart& part : flow.parts) {
      std::vector<double> coef(static_cast<size_t>(flow.count()));
      for (int64_t i = 0; i < flow.count(); ++i) coef[i] = by * flow.factor * CoefAt(part, i);
      sum.parts.push_back({part.index, std::make_shared<const std::vector<double>>(std::move(coef))});
    }
  };
  take(a, 1);
  take(b, sign);
  if (sum.parts.size() > 4) return std::nullopt;
  return sum;
}

bool IsOf(RaiseCall& c, const Flow& y, TermKind kind, const Flow& x) {
  const Term& term = c.trace.term(y);
  return term.kind == kind && y.plain() && SameFlow(term.in[0], x);
}

bool AddFlows(RaiseCall& c, Flow a, Flow b, double sign) {
  const std::optional<Shape> shape = MetShape(a.shape, b.shape);
  if (!shape) return c.Miss("added to a value of another shape");
  if (sign < 0 && IsOf(c, b, TermKind::kMean, a))
    return c.Emit(Term{.kind = TermKind::kCentre, .shape = a.shape, .in = {a}});
  if (sign < 0 && IsOf(c, b, TermKind::kMax, a))
    return c.Emit(Term{.kind = TermKind::kMinusMax, .shape = a.shape, .in = {a}});
  if (sign > 0 && (AddChosen(c, a, b) || AddChosen(c, b, a))) return true;
  a = BroadcastFlow(a, *shape);
  b = BroadcastFlow(b, *shape);
  const TermKind kind = c.trace.term(a).kind;
  if (a.term == b.term && (kind == TermKind::kLinear || kind == TermKind::kNorm)) {
    const std::optional<Flow> sum = Combined(a, b, sign);
    if (sum) return c.Out(0, *sum);
  }
  b.factor *= sign;
  return c.Emit(Term{.kind = TermKind::kAdd, .shape = *shape, .in = {a, b}});
}

bool MultiplyFlows(RaiseCall& c, const Flow& a, const Flow& b) {
  const std::optional<Shape> shape = MetShape(a.shape, b.shape);
  if (!shape) return c.Miss("multiplied with a value of another shape");
  for (const auto& [x, root] : {std::pair(a, b), std::pair(b, a)}) {
    if (std::optional<Flow> norm = MatchNorm(c, x, root, false)) return c.Out(0, *std::move(norm));
  }
  if (std::optional<Flow> act = MatchActivation(c, a, b)) return c.Out(0, *std::move(act));
  return c.Emit(Term{.kind = TermKind::kMul, .shape = *shape, .in = {a, b}});
}

bool DivideFlows(RaiseCall& c, const Flow& a, const Flow& b) {
  if (std::optional<Flow> norm = MatchNorm(c, a, b, true)) return c.Out(0, *std::move(norm));
  // exp(x - max) / sum of it
  const Term &top = c.trace.term(a), &bottom = c.trace.term(b);
  if (top.kind == TermKind::kUnary && top.word == "Exp" && a.plain() && bottom.kind == TermKind::kSum &&
      b.plain() && SameFlow(bottom.in[0], a))
    return c.Emit(Term{.kind = TermKind::kSoftmax, .shape = a.shape, .in = {top.in[0]}});
  if (top.kind == TermKind::kTop && a.plain() && bottom.kind == TermKind::kSum && b.plain() &&
      SameFlow(bottom.in[0], a) && a.shape.back() == top.width)
    return c.Emit(Term{.kind = TermKind::kNormTop, .shape = a.shape, .in = {a}, .width = top.width});
  return c.Miss("divided by what is no norm of it");
}

// ---- weights alone

bool WeightArithmetic(RaiseCall& c) {
  const absl::string_view op = c.op();
  const WeightPtr a = c.WeightAt(0), b = c.WeightAt(1);
  const std::optional<double> x = c.NumberAt(0), y = c.NumberAt(1);
  if (a != nullptr && y) {
    if (op == "Mul") return c.OutWeight(0, Scale(a, *y));
    if (op == "Div") return c.OutWeight(0, Map(MapFn::kDiv, a, Fill(*y, a->dtype(), {})));
    if (op == "Add") return c.OutWeight(0, AddConstant(a, *y));
    if (op == "Sub") return c.OutWeight(0, AddConstant(a, -*y));
  }
  if (b != nullptr && x) {
    if (op == "Mul") return c.OutWeight(0, Scale(b, *x));
    if (op == "Add") return c.OutWeight(0, AddConstant(b, *x));
  }
  return false;
}

// A flow of tokens and what is none: a number, a weight, a known tensor.
bool FlowAndRest(RaiseCall& c, const Flow& x, int rest, bool first) {
  const absl::string_view op = c.op();
  const std::optional<double> number = c.NumberAt(rest);
  const WeightPtr weight = c.WeightAt(rest);
  if (op == "Mul") {
    if (number) return FlowTimes(c, x, *number);
    if (weight != nullptr && ScaleNorm(c, x, weight)) return true;
    const std::optional<OnnxTensor> known = c.KnownAt(rest);
    return known ? FlowTimesKnown(c, x, *known, false) : c.Miss("scaled by a weight, and no norm");
  }
  if (op == "Div") {
    if (number && first) return FlowTimes(c, x, 1 / *number);
    if (number) {
      Flow inverse = c.New(Term{.kind = TermKind::kUnary, .shape = x.shape, .in = {x}, .word = "Reciprocal"});
      inverse.factor = *number;
      return c.Out(0, std::move(inverse));
    }
    const std::optional<OnnxTensor> known = first ? c.KnownAt(rest) : std::nullopt;
    return known ? FlowTimesKnown(c, x, *known, true) : c.Miss("divides what is known by what is not");
  }
  if (number) {
    if (op == "Add") return FlowPlus(c, x, *number);
    if (first) return FlowPlus(c, x, -*number);
    Flow negative = x;
    negative.factor = -negative.factor;
    return FlowPlus(c, negative, *number);
  }
  if (op == "Add" && weight != nullptr && AddBias(c, x, weight)) return true;
  const std::optional<OnnxTensor> known = c.KnownAt(rest);
  if (!known || (op == "Sub" && !first)) return c.Miss("added to a weight that is no bias of it");
  return FlowPlusKnown(c, x, *known, op == "Add" ? 1 : -1, rest);
}

bool Binary(RaiseCall& c) {
  const absl::string_view op = c.op();
  const bool adds = op == "Add" || op == "Sub";
  const Flow *a = c.Real(0), *b = c.Real(1);
  if (a == nullptr && b == nullptr) return WeightArithmetic(c);
  // Rows of a table are added as the values that they are, and multiply as the numbers that they are.
  if (adds && a == nullptr) a = c.FlowAt(0);
  if (adds && b == nullptr) b = c.FlowAt(1);
  if (a == nullptr) return FlowAndRest(c, *b, 0, false);
  if (b == nullptr) return FlowAndRest(c, *a, 1, true);
  if (op == "Mul") return MultiplyFlows(c, *a, *b);
  if (op == "Div") return DivideFlows(c, *a, *b);
  return AddFlows(c, *a, *b, op == "Add" ? 1 : -1);
}

bool PowRule(RaiseCall& c) {
  const Flow* x = c.Real(0);
  const std::optional<double> power = c.NumberAt(1);
  if (x == nullptr) return false;
  return power ? FlowPower(c, *x, *power) : c.Miss("a power that is no constant");
}

bool NegRule(RaiseCall& c) {
  if (c.WeightAt(0) != nullptr) return c.OutWeight(0, Scale(c.WeightAt(0), -1));
  const Flow* x = c.Real(0);
  return x != nullptr && FlowTimes(c, *x, -1);
}

bool UnaryRule(RaiseCall& c) {
  const Flow* x = c.Real(0);
  if (x == nullptr) return false;
  return c.Emit(Term{.kind = TermKind::kUnary, .shape = x->shape, .in = {*x}, .word = std::string(c.op())});
}

bool IsNanRule(RaiseCall& c) {
  const Flow* x = c.Real(0);
  return x != nullptr && c.Emit(Term{.kind = TermKind::kIsNan, .shape = x->shape, .in = {*x}});
}

// Where(known, x, number), Where(known, number, x); Where(isnan(x), 0, x) is x.
bool WhereRule(RaiseCall& c) {
  if (const Flow* nan = c.Real(0)) {
    const Flow* x = c.Real(2);
    const Term& test = c.trace.term(*nan);
    if (x != nullptr && test.kind == TermKind::kIsNan && SameFlow(test.in[0], *x)) return c.Out(0, *x);
    return c.Miss("chooses by what is computed");
  }
  const bool first = c.Real(1) != nullptr;
  const Flow* x = first ? c.Real(1) : c.Real(2);
  const std::optional<double> other = c.NumberAt(first ? 2 : 1);
  const std::optional<OnnxTensor> chosen = c.KnownAt(0);
  if (x == nullptr) return false;
  if (!other || !chosen || chosen->type() != ElementType::kBool)
    return c.Miss("chooses between what is no value and a number");
  const std::optional<Shape> shape = MetShape(x->shape, chosen->shape());
  if (!shape) return c.Miss("chooses by a tensor of another shape");
  std::vector<int64_t> seen = Elements<int64_t>(*chosen);
  for (int64_t& see : seen) see = (see != 0) == first ? 1 : 0;
  return c.Emit(Term{.kind = TermKind::kWhere,
                     .shape = *shape,
                     .in = {BroadcastFlow(*x, *shape)},
                     .known = TensorOf<int64_t>(ElementType::kBool, chosen->shape(), seen),
                     .number = *other,
                     .numbers = c.In(0).numbers});
}

}  // namespace

absl::Span<const RaiseRow> ArithmeticRules() {
  static constexpr RaiseRow kRows[] = {
      {"Add", Binary},        {"Sub", Binary},      {"Mul", Binary},     {"Div", Binary},
      {"Pow", PowRule},       {"Neg", NegRule},     {"Sqrt", UnaryRule}, {"Reciprocal", UnaryRule},
      {"Sigmoid", UnaryRule}, {"Tanh", UnaryRule},  {"Erf", UnaryRule},  {"Exp", UnaryRule},
      {"IsNaN", IsNanRule},   {"Where", WhereRule},
  };
  return kRows;
}

}  // namespace twinforge
