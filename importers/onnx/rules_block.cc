// Operators that make the parts of a block: projections, norms, activations, means, softmax.
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "importers/onnx/attend.h"
#include "importers/onnx/rules.h"
#include "onnx/onnx-ml.pb.h"
#include "weights/build.h"

namespace twinforge {
namespace {

constexpr double kNear = 1e-4;  // of constants that a file holds in 32 or 16 bits

bool Near(double x, double y) { return std::abs(x - y) <= kNear * std::abs(y); }

// Whether the flow's last axis is whole groups of adjacent features, each once.
bool GroupsWhole(const OnnxTrace& trace, const Flow& x, int64_t width) {
  if (x.parts.size() != 1 || x.parts[0].coef != nullptr || width < 1) return false;
  if (trace.term(x).count() != x.count() || trace.Width(x.term) % width != 0) return false;
  if (x.parts[0].index == nullptr) return true;
  const std::vector<int64_t>& index = *x.parts[0].index;
  for (size_t i = 0; i < index.size(); ++i) {
    const size_t group = i / width * width;
    if (index[group] % width != 0 || index[i] != index[group] + static_cast<int64_t>(i - group)) return false;
  }
  return true;
}

// ---- activations

struct ActivationMatch {
  Activation act;
  Flow x;
  double factor;
};

// x sigmoid(x), x sigmoid(1.702 x)
std::optional<ActivationMatch> MatchSwish(RaiseCall& c, const Flow& x, const Flow& gate) {
  const Term& term = c.trace.term(gate);
  if (term.kind != TermKind::kUnary || term.word != "Sigmoid" || !gate.whole()) return std::nullopt;
  Flow inner = term.in[0];
  const double slope = inner.factor / x.factor;
  inner.factor = x.factor;
  if (!SameFlow(inner, x)) return std::nullopt;
  if (slope == 1) return ActivationMatch{SILU, x, gate.factor};
  if (Near(slope, 1.702)) return ActivationMatch{QUICK_GELU, x, gate.factor};
  return std::nullopt;
}

// x (1 + erf(x / sqrt 2)), x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))): each half of it an activation
std::optional<ActivationMatch> MatchGelu(RaiseCall& c, Flow x, const Flow& gate) {
  const Term& sum = c.trace.term(gate);
  if (sum.kind != TermKind::kAddNumber || sum.number != 1 || !gate.whole() || !sum.in[0].plain())
    return std::nullopt;
  const Term& curve = c.trace.term(sum.in[0]);
  if (curve.kind != TermKind::kUnary) return std::nullopt;
  const Flow& inner = curve.in[0];
  const double factor = x.factor;
  x.factor = 1;
  if (curve.word == "Erf") {
    Flow base = inner;
    base.factor = 1;
    if (!SameFlow(base, x) || !Near(inner.factor, std::sqrt(0.5))) return std::nullopt;
    return ActivationMatch{GELU, x, 2 * factor * gate.factor};
  }
  if (curve.word != "Tanh" || !inner.whole() || !Near(inner.factor, std::sqrt(2 / M_PI))) return std::nullopt;
  const Term& poly = c.trace.term(inner);
  if (poly.kind != TermKind::kAdd) return std::nullopt;
  for (int first : {0, 1}) {
    const Flow &line = poly.in[first], &cube = poly.in[1 - first];
    if (!SameFlow(line, x) || !Near(cube.factor, 0.044715) || !cube.whole()) continue;
    const Term& third = c.trace.term(cube);
    if (third.kind == TermKind::kUnary && third.word == "Cube" && SameFlow(third.in[0], x))
      return ActivationMatch{GELU_TANH, x, 2 * factor * gate.factor};
  }
  return std::nullopt;
}

// x x^2 is a cube; x (1 + c x^2) is x + c x^3.
std::optional<Flow> MatchCube(RaiseCall& c, const Flow& x, const Flow& square) {
  const Term& term = c.trace.term(square);
  if (term.kind != TermKind::kMul || !square.plain() || !SameFlow(term.in[0], x) || !SameFlow(term.in[1], x))
    return std::nullopt;
  return c.New(Term{.kind = TermKind::kUnary, .shape = x.shape, .in = {x}, .word = "Cube"});
}

bool EmitAct(RaiseCall& c, Activation act, const Flow& x) {
  if (x.factor != 1) return c.Miss("an activation of a scaled value");
  return c.Emit(Term{.kind = TermKind::kAct, .shape = x.shape, .in = {x}, .act = act});
}

bool ActRule(RaiseCall& c) {
  const Flow* x = c.Real(0);
  if (x == nullptr) return false;
  if (c.op() == "Gelu") return EmitAct(c, c.Str("approximate") == "tanh" ? GELU_TANH : GELU, *x);
  if (c.op() == "Relu") return EmitAct(c, RELU, *x);
  if (c.op() == "Swish")
    return c.Float("alpha", 1) == 1 ? EmitAct(c, SILU, *x) : c.Miss("Swish with another alpha than 1");
  return false;
}

// ---- norms

double EpsilonOf(RaiseCall& c) { return c.Float("epsilon", 1e-5); }

bool OverLastAxis(RaiseCall& c, const Flow& x) {
  const auto rank = static_cast<int64_t>(x.shape.size());
  const int64_t axis = c.Int("axis", -1);
  return axis == -1 || axis == rank - 1;
}

bool NormRule(RaiseCall& c) {
  const Flow* x = c.Real(0);
  if (x == nullptr) return false;
  if (!OverLastAxis(c, *x)) return c.Miss("a norm over more than the last axis");
  const bool layer = c.op() == "LayerNormalization";
  if (c.WeightAt(1) == nullptr || (c.Has(2) && c.WeightAt(2) == nullptr))
    return c.Miss("a norm whose scale is no weight");
  return EmitNorm(c, *x, layer ? "layer" : "rms", EpsilonOf(c), c.WeightAt(1),
                  layer ? c.WeightAt(2) : nullptr);
}

// ---- reductions and softmax

bool ReduceRule(RaiseCall& c) {
  const Flow* x = c.Real(0);
  if (x == nullptr) return false;
  const std::optional<std::vector<int64_t>> axes = c.Has(1) ? c.IntegersAt(1) : c.Ints("axes");
  const auto rank = static_cast<int64_t>(x->shape.size());
  if (c.op() == "ReduceSum" && axes && axes->size() == 1 &&
      SumChosen(c, *x, (*axes)[0] < 0 ? (*axes)[0] + rank : (*axes)[0], c.Int("keepdims", 1) != 0))
    return true;
  if (rank == 0 || !axes || axes->size() != 1 || ((*axes)[0] != -1 && (*axes)[0] != rank - 1) ||
      c.Int("keepdims", 1) != 1)
    return c.Miss("a reduction over other axes than the last");
  Shape shape = x->shape;
  shape.back() = 1;
  const TermKind kind = c.op() == "ReduceMean"  ? TermKind::kMean
                        : c.op() == "ReduceMax" ? TermKind::kMax
                                                : TermKind::kSum;
  return c.Emit(Term{.kind = kind, .shape = shape, .in = {*x}});
}

bool SoftmaxRule(RaiseCall& c) {
  const Flow* x = c.Real(0);
  if (x == nullptr) return false;
  const auto rank = static_cast<int64_t>(x->shape.size());
  const int64_t axis = c.Int("axis", c.node.opset >= 13 ? -1 : 1);
  if (axis != -1 && axis != rank - 1) return c.Miss("softmax along another axis than the last");
  return c.Emit(Term{.kind = TermKind::kSoftmax, .shape = x->shape, .in = {*x}});
}

// ---- products

bool MatMulRule(RaiseCall& c) {
  const Flow *a = c.Real(0), *b = c.Real(1);
  if (a != nullptr && b != nullptr) {
    const bool chosen =
        c.trace.term(*a).kind == TermKind::kChosen || c.trace.term(*b).kind == TermKind::kChosen;
    return chosen ? MultiplyChosen(c, *a, *b) : MultiplyHeads(c, *a, *b);
  }
  const WeightPtr kernel = c.WeightAt(1);
  if (a == nullptr) return b == nullptr ? false : c.Miss("a known matrix times a value");
  if (kernel == nullptr || kernel->rank() != 2 || a->shape.empty() || a->shape.back() != kernel->shape()[0])
    return c.Miss("times what is no matrix of weights");
  Shape shape = a->shape;
  shape.back() = kernel->shape()[1];
  return EmitLinear(c, *a, kernel, nullptr, std::move(shape));
}

// The last two axes change places.
Flow SwappedFlow(const Flow& x) {
  Flow swapped = x;
  const size_t rank = x.shape.size();
  const int64_t rows = x.shape[rank - 2], columns = x.shape[rank - 1];
  std::swap(swapped.shape[rank - 2], swapped.shape[rank - 1]);
  for (FlowPart& part : swapped.parts) {
    std::vector<int64_t> index;
    std::vector<double> coef;
    for (int64_t i = 0; i < x.count(); ++i) {
      const int64_t block = i / (rows * columns), row = i % rows, column = i / rows % columns;
      const int64_t at = (block * rows + row) * columns + column;
      index.push_back(IndexAt(part, at));
      if (part.coef != nullptr) coef.push_back(CoefAt(part, at));
    }
    part.index = std::make_shared<const std::vector<int64_t>>(std::move(index));
    if (part.coef != nullptr) part.coef = std::make_shared<const std::vector<double>>(std::move(coef));
  }
  return swapped;
}

// alpha a b, or a b turned.
bool FusedMatMulRule(RaiseCall& c) {
  const Flow *a = c.Real(0), *b = c.Real(1);
  if (a == nullptr) return false;
  const bool turned = c.Int("transB", 0) != 0;
  if (c.Int("transA", 0) != 0 || c.Int("transBatchA", 0) != 0 || c.Int("transBatchB", 0) != 0)
    return c.Miss("a product whose first part, or whose batch, is turned");
  bool done = false;
  if (b != nullptr) {
    if (b->shape.size() < 3) return c.Miss("a product of two values that are no heads");
    done = MultiplyHeads(c, *a, turned ? SwappedFlow(*b) : *b);
  } else {
    WeightPtr kernel = c.WeightAt(1);
    if (kernel == nullptr || kernel->rank() != 2) return c.Miss("times what is no matrix of weights");
    if (turned) kernel = Transpose(kernel, {1, 0});
    if (a->shape.empty() || a->shape.back() != kernel->shape()[0])
      return c.Miss("a product of other sizes than its weight");
    Shape shape = a->shape;
    shape.back() = kernel->shape()[1];
    done = EmitLinear(c, *a, kernel, nullptr, std::move(shape));
  }
  if (done) c.trace.results()[0].flow->factor *= c.Float("alpha", 1);
  return done;
}

bool GemmRule(RaiseCall& c) {
  const Flow* a = c.Real(0);
  WeightPtr kernel = c.WeightAt(1);
  if (a == nullptr) return false;
  const bool bias = c.Has(2);
  if (kernel == nullptr || kernel->rank() != 2 || c.Int("transA", 0) != 0 || c.Float("alpha", 1) != 1 ||
      (bias && (c.WeightAt(2) == nullptr || c.Float("beta", 1) != 1)))
    return c.Miss("a product whose parts are no weights, turned or scaled");
  if (c.Int("transB", 0) != 0) kernel = Transpose(kernel, {1, 0});
  if (a->shape.size() != 2 || a->shape[1] != kernel->shape()[0])
    return c.Miss("a product of other sizes than its weight");
  if (bias && c.WeightAt(2)->element_count() != kernel->shape()[1])
    return c.Miss("a bias of another size than its product");
  const WeightPtr vector = bias ? Reshape(c.WeightAt(2), {kernel->shape()[1]}) : nullptr;
  return EmitLinear(c, *a, kernel, vector, {a->shape[0], kernel->shape()[1]});
}

}  // namespace

bool EmitLinear(RaiseCall& c, const Flow& x, WeightPtr kernel, WeightPtr bias, Shape shape) {
  Flow base = x;
  base.factor = 1;
  const std::optional<std::vector<int64_t>> features = c.trace.Features(base);
  if (!features) return c.Miss("a projection of what is no row of features");
  if (x.factor != 1 && bias != nullptr) return c.Miss("a projection with a bias of a scaled value");
  const int64_t width = c.trace.Width(x.term);
  if (!base.plain() && static_cast<int64_t>(features->size()) == width) {
    // Features in another order: the kernel's rows go into the term's.
    std::vector<Run> runs(static_cast<size_t>(width));
    for (size_t f = 0; f < features->size(); ++f) runs[(*features)[f]] = {static_cast<int64_t>(f), 1, 1};
    for (const Run& run : runs) {
      if (run.count == 0) return c.Miss("a projection that reads a feature twice");
    }
    kernel = Take(kernel, 0, IndexMap(std::move(runs)));
    base = Flow{.term = x.term, .shape = x.shape};
  }
  const int64_t out = kernel->shape()[1];
  Flow flow = c.New(Term{.kind = TermKind::kLinear,
                         .shape = {c.trace.probe().batch, c.trace.probe().seq, out},
                         .in = {base},
                         .kernel = std::move(kernel),
                         .bias = std::move(bias)});
  flow.shape = std::move(shape);
  flow.factor = x.factor;
  return c.Out(0, std::move(flow));
}

bool EmitNorm(RaiseCall& c, const Flow& x, std::string word, double eps, WeightPtr scale, WeightPtr bias,
              int output) {
  const int64_t width = x.shape.empty() ? 0 : x.shape.back();
  if (!GroupsWhole(c.trace, x, width)) return c.Miss("a norm of places that do not lie together");
  if (x.factor == 0 || (scale != nullptr && scale->element_count() != width) ||
      (bias != nullptr && bias->element_count() != width))
    return c.Miss("a norm whose scale has another size");
  Term norm{.kind = TermKind::kNorm,
            .shape = c.trace.term(x).shape,
            .in = {Flow{.term = x.term, .shape = c.trace.term(x).shape}},
            .number = eps / (x.factor * x.factor),
            .width = width,
            .word = std::move(word)};
  if (scale != nullptr) norm.kernel = Reshape(scale, {width});
  if (bias != nullptr) norm.bias = Reshape(bias, {width});
  Flow flow = c.New(std::move(norm));
  flow.shape = x.shape;
  flow.parts = x.parts;
  if (x.factor < 0) return c.Miss("a norm of a negated value");
  return c.Out(output, std::move(flow));
}

std::optional<Flow> MatchActivation(RaiseCall& c, const Flow& a, const Flow& b) {
  for (const auto& [x, gate] : {std::pair(a, b), std::pair(b, a)}) {
    std::optional<ActivationMatch> match = MatchSwish(c, x, gate);
    if (!match) match = MatchGelu(c, x, gate);
    if (match && match->x.factor == 1) {
      Flow flow = c.New(Term{.kind = TermKind::kAct, .shape = x.shape, .in = {match->x}, .act = match->act});
      flow.factor = match->factor;
      // Half and double meet in numbers that a file rounded.
      if (std::abs(flow.factor - 1) < 1e-6) flow.factor = 1;
      return flow;
    }
    if (std::optional<Flow> cube = MatchCube(c, x, gate)) return cube;
  }
  return std::nullopt;
}

std::optional<Flow> MatchNorm(RaiseCall& c, const Flow& x, const Flow& root, bool divided) {
  const Flow* at = &root;
  const auto step = [&](TermKind kind, absl::string_view word) -> const Term* {
    const Term& term = c.trace.term(*at);
    if (term.kind != kind || (!word.empty() && term.word != word) || !at->plain()) return nullptr;
    at = &term.in[0];
    return &term;
  };
  if (!divided && step(TermKind::kUnary, "Reciprocal") == nullptr) return std::nullopt;
  if (step(TermKind::kUnary, "Sqrt") == nullptr) return std::nullopt;
  const Term* sum = step(TermKind::kAddNumber, "");
  if (sum == nullptr || step(TermKind::kMean, "") == nullptr) return std::nullopt;
  const Term& square = c.trace.term(*at);
  if (square.kind != TermKind::kMul || !at->plain() || !SameFlow(square.in[0], x) ||
      !SameFlow(square.in[1], x))
    return std::nullopt;
  const Term& centre = c.trace.term(x);
  const bool layer = centre.kind == TermKind::kCentre && x.plain();
  const double eps = sum->number;
  if (!EmitNorm(c, layer ? Flow(centre.in[0]) : x, layer ? "layer" : "rms", eps, nullptr, nullptr))
    return std::nullopt;
  return std::move(c.trace.results()[0].flow);
}

absl::Span<const RaiseRow> BlockRules() {
  static constexpr RaiseRow kRows[] = {
      {"MatMul", MatMulRule},
      {"Gemm", GemmRule},
      {"FusedMatMul", FusedMatMulRule, "com.microsoft"},
      {"LayerNormalization", NormRule},
      {"RMSNormalization", NormRule},
      {"SimplifiedLayerNormalization", NormRule},
      {"SimplifiedLayerNormalization", NormRule, "com.microsoft"},
      {"ReduceMean", ReduceRule},
      {"ReduceMax", ReduceRule},
      {"ReduceSum", ReduceRule},
      {"Softmax", SoftmaxRule},
      {"Gelu", ActRule},
      {"Relu", ActRule},
      {"Swish", ActRule},
  };
  return kRows;
}

}  // namespace twinforge
