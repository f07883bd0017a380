// Mixtures of experts: the best of a router, the matrices that they choose, products with these, their sum.
//
//   exporters write   Softmax, TopK, Div by the sum, Gather, MatMul, .., Mul, ReduceSum
//   onnxruntime has   MoE, which makes the same terms
#include <limits>

#include "importers/onnx/rules.h"
#include "weights/build.h"

namespace twinforge {
namespace {

// The best `k` of the last axis: what they are, and where.
std::pair<Flow, Flow> BestOf(RaiseCall& c, const Flow& x, int64_t k) {
  Shape shape = x.shape;
  shape.back() = k;
  Flow top = c.New(Term{.kind = TermKind::kTop, .shape = shape, .in = {x}, .width = k});
  Flow places = c.New(Term{.kind = TermKind::kTopPlace, .shape = shape, .in = {x}, .width = k});
  return {std::move(top), std::move(places)};
}

bool TopKRule(RaiseCall& c) {
  const Flow* x = c.Real(0);
  if (x == nullptr) return false;
  const auto rank = static_cast<int64_t>(x->shape.size());
  const int64_t axis = c.Int("axis", -1);
  if (rank == 0 || (axis != -1 && axis != rank - 1) || c.Int("largest", 1) != 1)
    return c.Miss("the least, or the largest along another axis than the last");
  const std::optional<std::vector<int64_t>> given =
      c.Has(1) ? c.IntegersAt(1) : std::vector<int64_t>{c.Int("k", 0)};
  if (!given || given->size() != 1 || (*given)[0] < 1 || (*given)[0] > x->shape.back())
    return c.Miss("how many are chosen is not known beforehand");
  auto [top, places] = BestOf(c, *x, (*given)[0]);
  c.Out(0, std::move(top));
  return c.Out(1, std::move(places));
}

bool GatherNdRule(RaiseCall& c) {
  const WeightPtr table = c.WeightAt(0);
  const Flow* places = c.Real(1);
  if (table == nullptr || places == nullptr) return c.Real(0) != nullptr && c.Move(0);
  if (c.Int("batch_dims", 0) != 0 || places->shape.empty() || places->shape.back() != 1 ||
      c.trace.term(*places).kind != TermKind::kTopPlace)
    return c.Miss("rows that are chosen by what is computed");
  return GatherChosen(c, table, *places, {places->shape.begin(), places->shape.end() - 1});
}

// The bounds of a gate and of its value.
bool ClipRule(RaiseCall& c) {
  const Flow* x = c.Real(0);
  if (x == nullptr) return false;
  constexpr double kFree = std::numeric_limits<double>::infinity();
  const bool inputs = c.node.opset >= 11;
  const std::optional<double> low = c.Has(1) ? c.NumberAt(1) : inputs ? -kFree : c.Float("min", -kFree);
  const std::optional<double> high = c.Has(2) ? c.NumberAt(2) : inputs ? kFree : c.Float("max", kFree);
  if (!low || !high) return c.Miss("bounds that are no constants");
  return c.Emit(Term{.kind = TermKind::kUnary,
                     .shape = x->shape,
                     .in = {*x},
                     .number = *high,
                     .offset = *low,
                     .word = "Clip"});
}

// ---- onnxruntime's operator

// Rows [experts, out, in] of one layer, each `step`th from `first` on, times x.
Flow LayerOf(RaiseCall& c, const Flow& x, const Flow& places, WeightPtr rows, WeightPtr bias, int64_t first,
             int64_t step) {
  const int64_t count = rows->shape()[1] / step;
  if (step > 1) rows = Take(rows, 1, IndexMap::Slice(first, count, step));
  if (step > 1 && bias != nullptr) bias = Take(bias, 1, IndexMap::Slice(first, count, step));
  return c.New(
      Term{.kind = TermKind::kExperts,
           .shape = {c.trace.probe().batch, c.trace.probe().seq, places.shape[0] / c.trace.rows(), count},
           .in = {x, places},
           .kernel = Transpose(rows, {0, 2, 1}),
           .bias = std::move(bias)});
}

struct ExpertWeights {
  WeightPtr rows, bias;
};

// Inputs `at` and `at` + 1, which may be absent; false where they are no weights, or of other sizes.
bool ReadLayer(RaiseCall& c, int at, const Shape& shape, ExpertWeights& layer) {
  if (!c.Has(at)) return !c.Has(at + 1);
  layer = {c.WeightAt(at), c.WeightAt(at + 1)};
  if (layer.rows == nullptr || layer.rows->shape() != shape) return false;
  return !c.Has(at + 1) || (layer.bias != nullptr && layer.bias->shape() == Shape({shape[0], shape[1]}));
}

// What becomes of gate and value; false with a miss where the house has no word for it.
bool ReadGlu(RaiseCall& c, bool fused, MlpAttrs& glu) {
  const std::string word = c.Str("activation_type");
  if (!fused) {
    if (word != "silu" && word != "gelu" && word != "relu" && !word.empty())
      return c.Miss("experts with another activation than silu, gelu and relu");
    glu.set_act(word == "silu" ? SILU : word == "gelu" ? GELU_TANH : RELU);
    return true;
  }
  if (c.Int("swiglu_fusion", 0) != 1) return c.Miss("swiglu whose gate and value do not alternate");
  const double alpha = c.Float("activation_alpha", 1), beta = c.Float("activation_beta", 0),
               limit = c.Float("swiglu_limit", 0);
  glu.set_act(SILU);
  if (limit > 0) {
    glu.set_clamp_limit(limit);
    glu.set_clamp_alpha(static_cast<double>(static_cast<int64_t>(alpha * 1e6 + 0.5)) / 1e6);
    glu.set_up_offset(beta);
    return true;
  }
  return (alpha == 1 && beta == 0) || c.Miss("swiglu with factors of its own, and no limit");
}

bool MoeRule(RaiseCall& c) {
  const Flow *x = c.Real(0), *logits = c.Real(1);
  const WeightPtr up = c.WeightAt(2), down = c.WeightAt(4);
  if (x == nullptr || logits == nullptr) return c.Miss("a mixture of what tokens do not decide");
  if (up == nullptr || up->rank() != 3 || down == nullptr || down->rank() != 3 || x->shape.empty())
    return c.Miss("experts that are no weights");
  if (c.Int("use_sparse_mixer", 0) != 0) return c.Miss("a sparse mixer");
  const bool fused = c.Str("activation_type") == "swiglu";
  if (!fused && !c.Has(6)) return c.Miss("experts without a gate");
  if (fused && c.Has(6)) return c.Miss("swiglu with a third layer");
  const int64_t experts = up->shape()[0], wide = up->shape()[1], hidden = x->shape.back(),
                inner = fused ? wide / 2 : wide, k = c.Int("k", 1);
  if (!fused && inner == hidden)
    return c.Miss("experts as wide inside as outside: which way they lie is not said");
  ExpertWeights first, second, third;
  if (!ReadLayer(c, 2, {experts, wide, hidden}, first) ||
      !ReadLayer(c, 4, {experts, hidden, inner}, second) ||
      !ReadLayer(c, 6, {experts, inner, hidden}, third) || (fused && wide % 2 != 0))
    return c.Miss("experts whose layers are not [experts, out, in], one for another");
  if (!x->plain() || logits->shape.size() != 2 || logits->shape[1] != experts || k < 1 || k > experts)
    return c.Miss("a router of other sizes than its experts");
  MlpAttrs glu;
  if (!ReadGlu(c, fused, glu)) return false;
  const Flow scores = c.New(Term{.kind = TermKind::kSoftmax, .shape = logits->shape, .in = {*logits}});
  auto [weights, places] = BestOf(c, scores, k);
  if (c.Int("normalize_routing_weights", 0) != 0)
    weights = c.New(Term{.kind = TermKind::kNormTop, .shape = weights.shape, .in = {weights}, .width = k});
  places.shape = {places.count()};
  const Flow gate = LayerOf(c, *x, places, first.rows, first.bias, 0, fused ? 2 : 1);
  const Flow value = fused ? LayerOf(c, *x, places, first.rows, first.bias, 1, 2)
                           : LayerOf(c, *x, places, third.rows, third.bias, 0, 1);
  const Flow mixed = c.New(Term{.kind = TermKind::kGlu,
                                .shape = gate.shape,
                                .in = {gate, value},
                                .glu = std::make_shared<const MlpAttrs>(glu)});
  Flow y = c.New(Term{.kind = TermKind::kMixture,
                      .shape = {c.trace.probe().batch, c.trace.probe().seq, hidden},
                      .in = {LayerOf(c, mixed, places, second.rows, second.bias, 0, 1), weights}});
  y.shape = x->shape;
  return c.Out(0, std::move(y));
}

}  // namespace

bool GatherChosen(RaiseCall& c, const WeightPtr& table, const Flow& places, Shape shape) {
  if (!places.plain() || table->rank() < 2) return c.Miss("rows that are chosen by what is computed");
  shape.insert(shape.end(), table->shape().begin() + 1, table->shape().end());
  const Flow in{.term = places.term, .shape = {places.count()}};
  return c.Emit(Term{.kind = TermKind::kChosen, .shape = std::move(shape), .in = {in}, .kernel = table});
}

bool MultiplyChosen(RaiseCall& c, const Flow& a, const Flow& b) {
  const bool left = c.trace.term(a).kind == TermKind::kChosen;  // matrices [n, out, in] . x [n, in, 1]
  const Flow &chosen = left ? a : b, &x = left ? b : a;
  const Term& table = c.trace.term(chosen);
  const int64_t rows = c.trace.rows();
  if (!chosen.plain() || chosen.shape != table.shape || chosen.shape.size() != 3 || x.shape.size() != 3 ||
      x.shape[0] != chosen.shape[0] || chosen.shape[0] % rows != 0)
    return c.Miss("a product with chosen matrices that are moved or scaled");
  const int64_t in = chosen.shape[left ? 2 : 1], out = chosen.shape[left ? 1 : 2];
  if (x.shape[left ? 1 : 2] != in || x.shape[left ? 2 : 1] != 1)
    return c.Miss("a product with chosen matrices of other sizes");
  Flow vector = x;
  vector.shape = {x.shape[0], in};
  Flow flow = c.New(Term{.kind = TermKind::kExperts,
                         .shape = {c.trace.probe().batch, c.trace.probe().seq, x.shape[0] / rows, out},
                         .in = {vector, table.in[0]},
                         .kernel = left ? Transpose(table.kernel, {0, 2, 1}) : table.kernel});
  flow.shape = left ? Shape({x.shape[0], out, 1}) : Shape({x.shape[0], 1, out});
  return c.Out(0, std::move(flow));
}

bool AddChosen(RaiseCall& c, const Flow& a, const Flow& b) {
  Term product = c.trace.term(a);
  const Term& rows = c.trace.term(b);
  if (product.kind != TermKind::kExperts || rows.kind != TermKind::kChosen || product.bias != nullptr ||
      !a.plain() || !b.plain() || a.shape != b.shape || a.shape.size() != 2 || rows.kernel->rank() != 2 ||
      a.shape.back() != product.shape.back() || !SameFlow(product.in[1], rows.in[0]))
    return false;
  product.bias = rows.kernel;
  Flow flow = c.New(std::move(product));
  flow.shape = a.shape;
  return c.Out(0, std::move(flow));
}

bool SumChosen(RaiseCall& c, const Flow& x, int64_t axis, bool keep) {
  const Term& product = c.trace.term(x);
  if (product.kind != TermKind::kMul || !x.plain()) return false;
  for (int i : {0, 1}) {
    const Flow &y = product.in[i], &weights = product.in[1 - i];
    const Term& experts = c.trace.term(y);
    if (experts.kind != TermKind::kExperts || !y.plain() || !weights.whole()) continue;
    const auto rank = static_cast<int64_t>(x.shape.size());
    const int64_t k = experts.shape[2], out = experts.shape[3];
    Shape each = y.shape;
    if (each.empty() || each.back() != out) continue;
    each.back() = 1;
    if (weights.shape != each || rank < 2 || axis != rank - 2 || x.shape[axis] != k || x.shape.back() != out)
      continue;
    Flow sum = c.New(Term{.kind = TermKind::kMixture,
                          .shape = {c.trace.probe().batch, c.trace.probe().seq, out},
                          .in = {y, weights}});
    sum.shape = x.shape;
    sum.shape[axis] = 1;
    if (!keep) sum.shape.erase(sum.shape.begin() + axis);
    return c.Out(0, std::move(sum));
  }
  return false;
}

absl::Span<const RaiseRow> ExpertRules() {
  static constexpr RaiseRow kRows[] = {
      {"TopK", TopKRule},
      {"GatherND", GatherNdRule},
      {"Clip", ClipRule},
      {"MoE", MoeRule, "com.microsoft"},
  };
  return kRows;
}

}  // namespace twinforge
