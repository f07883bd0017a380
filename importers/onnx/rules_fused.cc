// Operators that are a block, or most of one: of the standard since opset 23, and onnxruntime's own.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "importers/onnx/attend.h"
#include "importers/onnx/rules.h"
#include "weights/build.h"

namespace twinforge {
namespace {

constexpr int64_t kMostHeads = int64_t{1} << 24;

// ---- heads

// [batch, seq, heads * width] as [batch, seq, heads, width]; [batch, heads, seq, width] as it is.
std::optional<HeadsOperand> OperandOf(RaiseCall& c, const Flow& flow, int64_t heads) {
  HeadsOperand operand{flow, "bhsd"};
  if (flow.shape.size() == 3) {
    if (heads < 1 || flow.shape[2] % heads != 0) return std::nullopt;
    operand.axes = "bshd";
    operand.flow.shape = {flow.shape[0], flow.shape[1], heads, flow.shape[2] / heads};
  }
  const size_t s = operand.axes.find('s');
  if (operand.flow.shape.size() != 4 || operand.flow.shape[0] != c.trace.probe().batch ||
      operand.flow.shape[s] != c.trace.probe().seq)
    return std::nullopt;
  return operand;
}

struct RotaryTables {
  std::vector<double> cosine, sine;  // [batch, seq, pairs]
  int64_t pairs = 0;
};

// Rows of the tables by position: the tables are [batch, seq, pairs] already, or [positions, pairs].
std::optional<RotaryTables> TablesOf(RaiseCall& c, int cosine, int sine, const std::vector<int64_t>* places) {
  const std::optional<OnnxTensor> cos = c.KnownAt(cosine), sin = c.KnownAt(sine);
  if (!cos || !sin || cos->shape() != sin->shape() || cos->rank() < 2 || !IsFloatingElement(cos->type()))
    return std::nullopt;
  const std::vector<double> cs = Elements<double>(*cos), sn = Elements<double>(*sin);
  RotaryTables tables{.pairs = cos->shape().back()};
  if (tables.pairs < 1 || (places != nullptr && places->empty())) return std::nullopt;
  const int64_t rows = c.trace.rows(), have = cos->count() / tables.pairs;
  if (have < 1) return std::nullopt;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t at = places != nullptr ? (*places)[row % places->size()] : row % have;
    if (places == nullptr && have != rows && have != c.trace.probe().seq) return std::nullopt;
    if (at < 0 || at >= have) return std::nullopt;
    for (int64_t i = 0; i < tables.pairs; ++i) {
      tables.cosine.push_back(cs[at * tables.pairs + i]);
      tables.sine.push_back(sn[at * tables.pairs + i]);
    }
  }
  return tables;
}

// x cos - partner sin, partner cos + x sin, on the first 2 * pairs places of a head.
std::optional<HeadsOperand> Turned(RaiseCall& c, const HeadsOperand& x, const RotaryTables& tables,
                                   bool interleaved) {
  const Flow& flow = x.flow;
  const int64_t width = flow.shape[3], rotary = 2 * tables.pairs, seq = c.trace.probe().seq;
  if (flow.parts.size() != 1 || rotary > width) return std::nullopt;
  const size_t count = static_cast<size_t>(flow.count());
  std::vector<int64_t> near(count), far(count);
  std::vector<double> near_by(count), far_by(count);
  const bool heads_first = x.axes == "bhsd";
  for (size_t i = 0; i < count; ++i) {
    const auto at = static_cast<int64_t>(i);
    const int64_t d = at % width, rest = at / width;
    const int64_t b = rest / (flow.shape[1] * flow.shape[2]);
    const int64_t s = heads_first ? rest % seq : rest / flow.shape[2] % seq;
    const bool second = interleaved ? d % 2 == 1 : d >= tables.pairs;
    const int64_t pair = interleaved ? d / 2 : d % tables.pairs;
    const int64_t partner = interleaved ? (d ^ 1) : (d + tables.pairs) % rotary;
    const bool turns = d < rotary;
    const int64_t other = turns ? at - d + partner : at;
    const int64_t table = (b * seq + s) * tables.pairs + pair;
    near[i] = IndexAt(flow.parts[0], at);
    far[i] = IndexAt(flow.parts[0], other);
    near_by[i] = CoefAt(flow.parts[0], at) * (turns ? tables.cosine[table] : 1);
    far_by[i] = turns ? CoefAt(flow.parts[0], other) * (second ? 1 : -1) * tables.sine[table] : 0;
  }
  HeadsOperand turned = x;
  turned.flow.parts = {{std::make_shared<const std::vector<int64_t>>(std::move(near)),
                        std::make_shared<const std::vector<double>>(std::move(near_by))},
                       {std::make_shared<const std::vector<int64_t>>(std::move(far)),
                        std::make_shared<const std::vector<double>>(std::move(far_by))}};
  return turned;
}

bool RotaryRule(RaiseCall& c) {
  const Flow* x = c.Real(0);
  if (x == nullptr) return false;
  const bool contrib = !c.node.domain.empty();
  const int cosine = contrib ? 2 : 1;
  const int at = contrib ? 1 : 3;
  const std::optional<std::vector<int64_t>> places = c.Has(at) ? c.IntegersAt(at) : std::nullopt;
  std::vector<int64_t> all;
  if (places && places->size() == 1) {
    for (int64_t row = 0; row < c.trace.rows(); ++row)
      all.push_back((*places)[0] + row % c.trace.probe().seq);
  } else if (places) {
    all = *places;
  }
  const std::optional<RotaryTables> tables = TablesOf(c, cosine, cosine + 1, places ? &all : nullptr);
  if (!tables) return c.Miss("rotary tables that are not known, or of another size than the tokens");
  int64_t heads = c.Int("num_heads", 0);
  if (heads == 0 && x->shape.size() == 3 && c.Int("rotary_embedding_dim", 0) == 0)
    heads = x->shape[2] / (2 * tables->pairs);
  const std::optional<HeadsOperand> operand = OperandOf(c, *x, heads);
  if (!operand) return c.Miss("turns what has no axes of batch, heads, sequence and width");
  std::optional<HeadsOperand> turned = Turned(c, *operand, *tables, c.Int("interleaved", 0) != 0);
  if (!turned) return c.Miss("turns what is turned already, or more places than a head has");
  turned->flow.shape = x->shape;
  return c.Out(0, std::move(turned->flow));
}

// An empty cache, or none.
bool NoPast(RaiseCall& c, int i) { return !c.Has(i) || (c.In(i).known && c.In(i).known->count() == 0); }

// What is handed to later calls: the keys and values themselves.
void HandOn(RaiseCall& c, int first, const AttendSpec& spec) {
  const HeadsOperand* operands[] = {&spec.k, &spec.v};
  for (int i : {0, 1}) {
    if (first + i < static_cast<int>(c.node.outputs.size()) && c.node.outputs[first + i] >= 0)
      c.Out(first + i, operands[i]->flow);
  }
}

// Attention of the standard (opset 23 and later).
bool AttentionRule(RaiseCall& c) {
  const Flow *q = c.Real(0), *k = c.Real(1), *v = c.Real(2);
  if (q == nullptr || k == nullptr || v == nullptr) return c.Miss("operands that tokens do not decide");
  if (!NoPast(c, 4) || !NoPast(c, 5)) return c.Miss("keys of earlier calls that are no empty cache");
  if (c.Has(6) || c.Int("qk_matmul_output_mode", 0) != 0)
    return c.Miss("counts of keys, or scores as an output");
  const std::optional<HeadsOperand> heads[] = {OperandOf(c, *q, c.Int("q_num_heads", 0)),
                                               OperandOf(c, *k, c.Int("kv_num_heads", 0)),
                                               OperandOf(c, *v, c.Int("kv_num_heads", 0))};
  if (!heads[0] || !heads[1] || !heads[2]) return c.Miss("operands without heads");
  AttendSpec spec{.q = *heads[0], .k = *heads[1], .v = *heads[2]};
  const auto width = static_cast<double>(spec.q.flow.shape[3]);
  spec.scale = c.Float("scale", 1 / std::sqrt(width));
  spec.softcap = c.Float("softcap", 0);
  spec.causal = c.Int("is_causal", 0) != 0;
  spec.result = q->shape;
  if (c.Has(3)) {
    const std::optional<OnnxTensor> mask = c.KnownAt(3);
    if (!mask) return c.Miss("a mask that tokens decide");
    spec.masks.push_back(*mask);
    spec.numbers = c.In(3).numbers;
  }
  HandOn(c, 1, spec);
  return EmitAttend(c, spec);
}

// ---- onnxruntime's own

// Columns [begin, begin + count) of the last axis.
Flow ColumnsOf(const Flow& flow, int64_t begin, int64_t count) {
  Flow columns{.term = flow.term, .shape = flow.shape, .factor = flow.factor};
  columns.shape.back() = count;
  columns.parts.clear();
  const int64_t all = flow.shape.back();
  for (const FlowPart& part : flow.parts) {
    std::vector<int64_t> index;
    std::vector<double> coef;
    for (int64_t i = 0; i < columns.count(); ++i) {
      const int64_t at = i / count * all + begin + i % count;
      index.push_back(IndexAt(part, at));
      if (part.coef) coef.push_back(CoefAt(part, at));
    }
    columns.parts.push_back(
        {std::make_shared<const std::vector<int64_t>>(std::move(index)),
         part.coef ? std::make_shared<const std::vector<double>>(std::move(coef)) : nullptr});
  }
  return columns;
}

// A projection with its bias; nullopt where it has one, or is none.
std::optional<Flow> WithBias(RaiseCall& c, const Flow& x, const WeightPtr& bias) {
  Term term = c.trace.term(x);
  if (term.kind != TermKind::kLinear || term.bias != nullptr || !x.plain() ||
      bias->element_count() != c.trace.Width(x.term) || x.shape.back() != bias->element_count())
    return std::nullopt;
  term.bias = Reshape(bias, {bias->element_count()});
  Flow flow = c.New(std::move(term));
  flow.shape = x.shape;
  return flow;
}

// Which keys a mask of whole numbers shows: [batch, keys] of 0 and 1, or how many of each sequence.
std::optional<OnnxTensor> KeyMask(RaiseCall& c, int at) {
  const std::optional<OnnxTensor> mask = c.KnownAt(at);
  const int64_t batch = c.trace.probe().batch, seq = c.trace.probe().seq;
  if (!mask || !IsIntegerElement(mask->type())) return std::nullopt;
  const bool lengths = mask->shape() == Shape({batch}), keys = mask->shape() == Shape({batch, seq});
  if (!lengths && !keys) return std::nullopt;
  const std::vector<int64_t> numbers = Elements<int64_t>(*mask);
  std::vector<int64_t> seen;
  for (int64_t i = 0; i < batch * seq; ++i)
    seen.push_back((keys ? numbers[i] != 0 : i % seq < numbers[i / seq]) ? 1 : 0);
  return TensorOf<int64_t>(ElementType::kBool, {batch, 1, 1, seq}, seen);
}

// Masks of keys and what is added to scores; false where one of them is not known.
bool AddMasks(RaiseCall& c, int keys, int added, AttendSpec& spec) {
  if (c.Has(keys)) {
    const std::optional<OnnxTensor> mask = KeyMask(c, keys);
    if (!mask) return false;
    spec.masks.push_back(*mask);
  }
  if (!c.Has(added)) return true;
  const std::optional<OnnxTensor> mask = c.KnownAt(added);
  if (!mask) return false;
  spec.masks.push_back(*mask);
  spec.numbers = c.In(added).numbers;
  return true;
}

bool EmitHeads(RaiseCall& c, AttendSpec& spec) {
  const double scale = c.Float("scale", 0);
  spec.scale = scale == 0 ? 1 / std::sqrt(static_cast<double>(spec.q.flow.shape.back())) : scale;
  spec.result = {c.trace.probe().batch, c.trace.probe().seq, spec.q.flow.count() / c.trace.rows()};
  HandOn(c, 1, spec);
  return EmitAttend(c, spec);
}

// Queries, keys and values of one projection, side by side, or of three.
bool ThreeOperands(RaiseCall& c, int64_t heads, int64_t kv_heads, AttendSpec& spec) {
  const Flow* x = c.Real(0);
  if (x == nullptr || heads < 1 || kv_heads < 1 || heads > kMostHeads || kv_heads > kMostHeads ||
      x->shape.size() != 3)
    return false;
  Flow q = *x, k, v;
  if (c.Has(1)) {
    if (c.Real(1) == nullptr || c.Real(2) == nullptr) return false;
    k = *c.Real(1);
    v = *c.Real(2);
  } else {
    const int64_t width = x->shape[2] / (heads + 2 * kv_heads);
    if (width * (heads + 2 * kv_heads) != x->shape[2]) return false;
    q = ColumnsOf(*x, 0, heads * width);
    k = ColumnsOf(*x, heads * width, kv_heads * width);
    v = ColumnsOf(*x, (heads + kv_heads) * width, kv_heads * width);
  }
  const std::optional<HeadsOperand> all[] = {OperandOf(c, q, heads), OperandOf(c, k, kv_heads),
                                             OperandOf(c, v, kv_heads)};
  if (!all[0] || !all[1] || !all[2]) return false;
  spec.q = *all[0];
  spec.k = *all[1];
  spec.v = *all[2];
  return true;
}

bool GroupQueryRule(RaiseCall& c) {
  AttendSpec spec;
  if (!ThreeOperands(c, c.Int("num_heads", 0), c.Int("kv_num_heads", 0), spec))
    return c.Miss("operands without heads");
  if (!NoPast(c, 3) || !NoPast(c, 4)) return c.Miss("keys of earlier calls that are no empty cache");
  for (int i = 12; i < c.inputs(); ++i) {
    if (c.Has(i)) return c.Miss("a quantised cache");
  }
  if (c.Int("do_rotary", 0) != 0) {
    std::vector<int64_t> places;
    for (int64_t row = 0; row < c.trace.rows(); ++row) places.push_back(row % c.trace.probe().seq);
    if (c.Has(9)) places = c.IntegersAt(9).value_or(places);
    const std::optional<RotaryTables> tables = TablesOf(c, 7, 8, &places);
    if (!tables) return c.Miss("rotary tables that are not known");
    const bool interleaved = c.Int("rotary_interleaved", 0) != 0;
    const std::optional<HeadsOperand> q = Turned(c, spec.q, *tables, interleaved),
                                      k = Turned(c, spec.k, *tables, interleaved);
    if (!q || !k) return c.Miss("turns more places than a head has");
    spec.q = *q;
    spec.k = *k;
  }
  if (!AddMasks(c, -1, 10, spec)) return c.Miss("a mask that is not known");
  if (c.Has(11) && c.WeightAt(11) == nullptr) return c.Miss("sinks that are no weight");
  if (c.Has(11)) spec.sinks = Reshape(c.WeightAt(11), {c.WeightAt(11)->element_count()});
  if (spec.sinks != nullptr && spec.sinks->element_count() != c.Int("num_heads", 0))
    return c.Miss("sinks that are not one for each head");
  if (spec.sinks == nullptr && c.Int("smooth_softmax", 0) > 0)
    return c.Miss("softmax with one more in its sum");
  spec.softcap = c.Float("softcap", 0);
  spec.causal = c.Int("causal", 1) != 0;
  spec.window = std::max<int64_t>(c.Int("local_window_size", -1), 0);
  return EmitHeads(c, spec);
}

bool MultiHeadRule(RaiseCall& c) {
  const int64_t heads = c.Int("num_heads", 0);
  AttendSpec spec;
  if (c.Has(1) != c.Has(2) || !ThreeOperands(c, heads, heads, spec)) return c.Miss("operands without heads");
  if (!NoPast(c, 6) || !NoPast(c, 7)) return c.Miss("keys of earlier calls that are no empty cache");
  if (c.Has(3)) {
    const WeightPtr bias = c.WeightAt(3);
    const int64_t each = spec.q.flow.count() / c.trace.rows();
    if (bias == nullptr || bias->element_count() != 3 * each || !c.Has(1))
      return c.Miss("a bias that is no weight");
    const WeightPtr vector = Reshape(bias, {3 * each});
    HeadsOperand* operands[] = {&spec.q, &spec.k, &spec.v};
    for (int i : {0, 1, 2}) {
      const std::optional<Flow> with = WithBias(c, *c.Real(i), Slice(vector, 0, i * each, each));
      if (!with) return c.Miss("a bias of what is no projection");
      operands[i]->flow.term = with->term;
    }
  }
  if (!AddMasks(c, 4, 5, spec)) return c.Miss("a mask that is not known");
  spec.causal = c.Int("unidirectional", 0) != 0;
  return EmitHeads(c, spec);
}

// x times one matrix of queries, keys and values.
bool PackedAttentionRule(RaiseCall& c) {
  const Flow* x = c.Real(0);
  const WeightPtr kernel = c.WeightAt(1);
  const int64_t heads = c.Int("num_heads", 0);
  if (x == nullptr || kernel == nullptr || kernel->rank() != 2 || x->shape.size() != 3 ||
      x->shape[2] != kernel->shape()[0] || (c.Has(2) && c.WeightAt(2) == nullptr))
    return c.Miss("a projection that is no weight");
  if (!NoPast(c, 4) || c.Ints("qkv_hidden_sizes") || c.Int("do_rotary", 0) != 0)
    return c.Miss("a cache that is not empty, sizes of its own, or a turn");
  const int64_t all = kernel->shape()[1];
  if (heads < 1 || heads > kMostHeads || all % (3 * heads) != 0 ||
      (c.Has(2) && c.WeightAt(2)->element_count() != all))
    return c.Miss("heads that do not divide the projection");
  const WeightPtr bias = c.Has(2) ? Reshape(c.WeightAt(2), {all}) : nullptr;
  if (!EmitLinear(c, *x, kernel, bias, {x->shape[0], x->shape[1], all})) return false;
  const Flow joined = *c.trace.results()[0].flow;
  AttendSpec spec;
  HeadsOperand* operands[] = {&spec.q, &spec.k, &spec.v};
  for (int i : {0, 1, 2}) {
    const std::optional<HeadsOperand> operand = OperandOf(c, ColumnsOf(joined, i * all / 3, all / 3), heads);
    if (!operand) return c.Miss("heads that do not divide the projection");
    *operands[i] = *operand;
  }
  if (!AddMasks(c, 3, 5, spec)) return c.Miss("a mask that is not known");
  spec.causal = c.Int("unidirectional", 0) != 0;
  return EmitHeads(c, spec);
}

// input + skip (+ bias), normalised; the sum is the fourth output.
bool SkipNormRule(RaiseCall& c) {
  const Flow *x = c.Real(0), *skip = c.Real(1);
  const bool layer = c.op() == "SkipLayerNormalization";
  const int bias_at = layer ? 4 : 3;
  if (x == nullptr || skip == nullptr || x->shape != skip->shape || c.WeightAt(2) == nullptr)
    return c.Miss("adds values of different shapes, or scales by what is no weight");
  Flow added = *x;
  if (c.Has(bias_at)) {
    const WeightPtr bias = c.WeightAt(bias_at);
    const std::optional<Flow> with = bias == nullptr ? std::nullopt : WithBias(c, *x, bias);
    if (!with) return c.Miss("a bias of what is no projection");
    added = *with;
  }
  if (layer && c.Has(3) && c.WeightAt(3) == nullptr) return c.Miss("a norm whose bias is no weight");
  const Flow sum = c.New(Term{.kind = TermKind::kAdd, .shape = x->shape, .in = {*skip, added}});
  c.Out(3, sum);
  return EmitNorm(c, sum, layer ? "layer" : "rms", c.Float("epsilon", 1e-12), c.WeightAt(2),
                  layer && c.Has(3) ? c.WeightAt(3) : nullptr);
}

bool FusedActRule(RaiseCall& c) {
  const Flow* x = c.Real(0);
  if (x == nullptr) return false;
  Flow inner = *x;
  if (c.Has(1)) {
    const std::optional<Flow> with = c.WeightAt(1) == nullptr ? std::nullopt : WithBias(c, *x, c.WeightAt(1));
    if (!with) return c.Miss("a bias of what is no projection");
    inner = *with;
  }
  if (inner.factor != 1) return c.Miss("an activation of a scaled value");
  Activation act = c.op() == "FastGelu" ? GELU_TANH : GELU;
  if (c.op() == "QuickGelu") {
    const double alpha = c.Float("alpha", 1.702);
    act = alpha == 1 ? SILU : QUICK_GELU;
    if (alpha != 1 && std::abs(alpha - 1.702) > 1e-6) return c.Miss("QuickGelu of another alpha");
  }
  return c.Emit(Term{.kind = TermKind::kAct, .shape = inner.shape, .in = {inner}, .act = act});
}

// ids, segments, three tables, gamma, beta, mask, positions.
bool EmbedNormRule(RaiseCall& c) {
  const Flow* ids = c.Real(0);
  const int64_t batch = c.trace.probe().batch, seq = c.trace.probe().seq;
  if (ids == nullptr || !ids->plain() || c.trace.term(*ids).kind != TermKind::kTokens)
    return c.Miss("ids that are no tokens");
  const WeightPtr words = c.WeightAt(2), places = c.WeightAt(3), types = c.WeightAt(4);
  for (const WeightPtr& table : {words, places}) {
    if (table == nullptr || table->rank() != 2 || table->shape()[1] != words->shape()[1])
      return c.Miss("a table that is no matrix of weights");
  }
  const Shape shape = {batch, seq, words->shape()[1]};
  const auto add = [&](const Flow& x, const Flow& y) {
    return c.New(Term{.kind = TermKind::kAdd, .shape = shape, .in = {x, y}});
  };
  const auto rows = [&](const WeightPtr& table, std::vector<int64_t> at) {
    return c.New(Term{.kind = TermKind::kRows,
                      .shape = shape,
                      .kernel = table,
                      .known = TensorOf<int64_t>(ElementType::kInt64, {batch, seq}, at)});
  };
  Flow sum =
      c.New(Term{.kind = TermKind::kEmbed, .shape = shape, .in = {*ids}, .kernel = words, .number = 1});
  std::vector<int64_t> counting;
  for (int64_t i = 0; i < batch * seq; ++i) counting.push_back(i % seq);
  if (c.Has(8)) {
    const std::optional<std::vector<int64_t>> given = c.IntegersAt(8);
    if (!given || given->empty()) return c.Miss("positions that are not known");
    for (size_t i = 0; i < counting.size(); ++i) counting[i] = (*given)[i % given->size()];
  }
  sum = add(sum, rows(places, counting));
  if (c.Has(4)) {
    if (types == nullptr || types->rank() != 2 || types->shape()[1] != shape[2])
      return c.Miss("a table that is no matrix of weights");
    const Flow* segments = c.Real(1);
    std::vector<int64_t> at(static_cast<size_t>(batch * seq), 0);
    if (segments == nullptr && c.Has(1)) at = c.IntegersAt(1).value_or(at);
    if (segments != nullptr && (!segments->plain() || c.trace.term(*segments).kind != TermKind::kTokens))
      return c.Miss("segments that are computed");
    sum = add(sum, segments == nullptr ? rows(types, at)
                                       : c.New(Term{.kind = TermKind::kEmbed,
                                                    .shape = shape,
                                                    .in = {*segments},
                                                    .kernel = types,
                                                    .number = 1}));
  }
  c.Out(2, sum);
  std::vector<int64_t> lengths(static_cast<size_t>(batch), 0);
  if (c.Has(7)) {
    const std::optional<std::vector<int64_t>> mask = c.IntegersAt(7);
    if (!mask || static_cast<int64_t>(mask->size()) != batch * seq) return c.Miss("a mask that is not known");
    for (int64_t i = 0; i < batch * seq; ++i) lengths[i / seq] += (*mask)[i];
  }
  c.OutKnown(1, TensorOf<int64_t>(ElementType::kInt32, {batch}, lengths));
  if (c.WeightAt(5) == nullptr || c.WeightAt(6) == nullptr) return c.Miss("a norm whose scale is no weight");
  return EmitNorm(c, sum, "layer", c.Float("epsilon", 1e-12), c.WeightAt(5), c.WeightAt(6));
}

}  // namespace

absl::Span<const RaiseRow> FusedRules() {
  static constexpr RaiseRow kRows[] = {
      {"RotaryEmbedding", RotaryRule},
      {"RotaryEmbedding", RotaryRule, "com.microsoft"},
      {"Attention", AttentionRule},
      {"GroupQueryAttention", GroupQueryRule, "com.microsoft"},
      {"MultiHeadAttention", MultiHeadRule, "com.microsoft"},
      {"Attention", PackedAttentionRule, "com.microsoft"},
      {"SkipSimplifiedLayerNormalization", SkipNormRule, "com.microsoft"},
      {"SkipLayerNormalization", SkipNormRule, "com.microsoft"},
      {"EmbedLayerNormalization", EmbedNormRule, "com.microsoft"},
      {"BiasGelu", FusedActRule, "com.microsoft"},
      {"FastGelu", FusedActRule, "com.microsoft"},
      {"Gelu", FusedActRule, "com.microsoft"},
      {"QuickGelu", FusedActRule, "com.microsoft"},
  };
  return kRows;
}

}  // namespace twinforge
