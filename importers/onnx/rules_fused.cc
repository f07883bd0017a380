// Operators that are a block, or most of one: of the standard since opset 23, and onnxruntime's own.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "importers/onnx/attend.h"
#include "importers/onnx/rules.h"
#include "weights/build.h"

namespace twinforge {
namespace {

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
  const int64_t rows = c.trace.rows(), have = cos->count() / tables.pairs;
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
    for (int64_t row = 0; row < c.trace.rows(); ++row) all.push_back((*places)[0] + row % c.trace.probe().seq);
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
  if (c.Has(6) || c.Int("qk_matmul_output_mode", 0) != 0) return c.Miss("counts of keys, or scores as an output");
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

}  // namespace

absl::Span<const RaiseRow> FusedRules() {
  static constexpr RaiseRow kRows[] = {
      {"RotaryEmbedding", RotaryRule},
      {"RotaryEmbedding", RotaryRule, "com.microsoft"},
      {"Attention", AttentionRule},
  };
  return kRows;
}

}  // namespace twinforge
