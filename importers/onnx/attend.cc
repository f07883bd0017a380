#include "importers/onnx/attend.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "weights/build.h"

namespace twinforge {
namespace {

constexpr double kHidden =
    -1e4;  // what is added to a score so that nobody sees it; exp of it is 0 in 32 bits

// ---- masks

// One mask over scores [batch * heads, seq, keys], met with what was hidden before.
bool HideBy(const OnnxTrace& trace, const OnnxTensor& mask, const Shape& scores, double hides, SeenMask& seen,
            std::string& why) {
  const int64_t batch = trace.probe().batch, seq = trace.probe().seq;
  const int64_t each = scores.empty() ? 0 : seq * scores.back();
  const int64_t lead = each > 0 ? ElementCount(scores) / each : 0;
  const std::optional<Shape> shape = MetShape(mask.shape(), scores);
  why = "a mask of another shape than the scores";
  if (shape != scores || scores.size() < 3 || scores[scores.size() - 2] != seq || scores.back() != seq ||
      lead % batch != 0)
    return false;
  Flow values{.term = 0, .shape = mask.shape()};
  values.parts[0].coef = std::make_shared<const std::vector<double>>(Elements<double>(mask));
  const Flow wide = BroadcastFlow(values, scores);
  if (seen.seen.empty()) {
    seen.heads = lead / batch;
    seen.seen.assign(static_cast<size_t>(wide.count()), true);
  }
  if (static_cast<int64_t>(seen.seen.size()) != wide.count()) return false;
  const bool chooses = mask.type() == ElementType::kBool;
  for (int64_t i = 0; i < wide.count(); ++i) {
    const double value = CoefAt(wide.parts[0], i);
    const bool hidden = chooses ? value == 0 : value <= hides;
    why = absl::StrCat("a number of ", value, " is added to scores, and is no mask");
    if (!chooses && !hidden && value != 0) return false;
    if (hidden) seen.seen[i] = false;
  }
  why.clear();
  return true;
}

// Causal, within a window, or everything.
bool FitMask(const OnnxTrace& trace, const SeenMask& mask, AttentionAttrs& attrs, std::string& why) {
  const int64_t batch = trace.probe().batch, seq = trace.probe().seq, hidden = trace.probe().hidden;
  const auto sees = [&](int64_t b, int64_t h, int64_t q, int64_t k) {
    return mask.seen.empty() || mask.seen[((b * mask.heads + h) * seq + q) * seq + k];
  };
  int64_t window = 0;
  int64_t ahead = 0;  // how many later places are seen
  for (int64_t k = 0; k < seq; ++k) window += sees(0, 0, seq - 1, k) ? 1 : 0;
  for (int64_t q = 0; q < seq; ++q) {
    for (int64_t k = q + 1; k < seq; ++k) ahead += sees(0, 0, q, k) ? 1 : 0;
  }
  const bool causal = 4 * ahead < seq * (seq - 1);  // the nearer of the two; what differs is named below
  attrs.set_causal(causal);
  attrs.set_window(window < seq ? window : 0);
  // A file hides padding where attention_mask says it is, or so many places at the end, or not at all.
  const auto padding = [&](int64_t b, int64_t at, bool left) {
    return b == batch - 1 && (left ? at < hidden : at >= seq - hidden);
  };
  const auto differs = [&](bool left) {
    for (int64_t i = 0; i < batch * mask.heads * seq * seq; ++i) {
      const int64_t k = i % seq, q = i / seq % seq, h = i / (seq * seq) % mask.heads;
      const int64_t b = i / (seq * seq * mask.heads);
      const bool want = (!causal || k <= q) && (window == seq || q - k < window);
      if (sees(b, h, q, k) == want || padding(b, q, left) || (want && padding(b, k, left))) continue;
      why = absl::StrCat("the mask lets place ", q, (want ? " not see " : " see "), k,
                         ": it is not causal, not a causal window, and not without bound");
      return true;
    }
    return false;
  };
  if (differs(true) && (hidden == 0 || differs(false))) return false;
  why.clear();
  return window > 0;
}

// ---- from softmax back to scores

struct PeeledScores {
  Flow q, k;
  double scale = 1, softcap = 0;
  SeenMask seen;
  WeightPtr sinks;
  std::vector<int64_t> numbers;
};

// One number for each head, after the scores of its keys.
WeightPtr SinksOf(const OnnxTrace& trace, const Flow& flow, int64_t heads) {
  const Term& term = trace.term(flow);
  if (heads < 1 || term.kind != TermKind::kParam || flow.factor != 1 || flow.parts.size() != 1 ||
      flow.parts[0].coef != nullptr || term.count() != heads || flow.shape.back() != 1)
    return nullptr;
  const int64_t each = flow.count() / (trace.probe().batch * heads);
  if (each < 1) return nullptr;
  for (int64_t i = 0; i < flow.count(); ++i) {
    if (IndexAt(flow.parts[0], i) != i / each % heads) return nullptr;
  }
  return Reshape(term.kernel, {heads});
}

bool PeelScores(const OnnxTrace& trace, Flow x, PeeledScores& out, std::string& why) {
  for (;;) {
    const Term& term = trace.term(x);
    why = "scores that are moved or scaled one by one";
    if (!x.whole() || !(x.factor > 0)) return false;
    out.scale *= x.factor;
    switch (term.kind) {
      case TermKind::kMinusMax:
        break;
      case TermKind::kAddKnown:
      case TermKind::kWhere: {
        why = "scores are hidden by a number that is not very negative";
        if (term.kind == TermKind::kWhere && !(term.number * out.scale <= kHidden)) return false;
        if (!HideBy(trace, term.known, term.shape, kHidden / out.scale, out.seen, why)) return false;
        out.numbers.insert(out.numbers.end(), term.numbers.begin(), term.numbers.end());
        break;
      }
      case TermKind::kUnary:
        why = absl::StrCat(term.word, " of scores");
        if (term.word != "Tanh" || out.softcap != 0 || !(term.in[0].factor > 0)) return false;
        out.softcap = out.scale;
        break;
      case TermKind::kConcat: {
        const Shape& shape = term.in[0].shape;
        const int64_t heads = term.in[0].count() / (trace.rows() * trace.probe().seq);
        why = "scores joined with what are no sinks of the heads";
        if (shape.back() != trace.probe().seq || out.sinks != nullptr || out.scale != 1) return false;
        out.sinks = SinksOf(trace, term.in[1], heads);
        if (out.sinks == nullptr) return false;
        break;
      }
      case TermKind::kScores:
        out.q = term.in[0];
        out.k = term.in[1];
        return true;
      default:
        why = "softmax of what are no scores";
        return false;
    }
    x = Flow(term.in[0]);
  }
}

// Probabilities of the keys: softmax's first `seq` columns in their places.
bool IsProbabilities(const OnnxTrace& trace, const Flow& p) {
  const Term& term = trace.term(p);
  if (term.kind != TermKind::kSoftmax || p.factor != 1 || p.parts.size() != 1 || p.parts[0].coef != nullptr ||
      p.shape.empty() || term.shape.empty())
    return false;
  const int64_t keys = p.shape.back(), all = term.shape.back();
  if (all < 1 || keys != trace.probe().seq || p.count() / keys != term.count() / all) return false;
  for (int64_t i = 0; i < p.count(); ++i) {
    if (IndexAt(p.parts[0], i) != i / keys * all + i % keys) return false;
  }
  return true;
}

// [batch, heads, x, y] of what may be [batch * heads, x, y].
std::optional<Flow> FourAxes(const OnnxTrace& trace, Flow flow) {
  if (flow.shape.size() == 3 && flow.shape[0] % trace.probe().batch == 0) {
    flow.shape.insert(flow.shape.begin(), trace.probe().batch);
    flow.shape[1] /= trace.probe().batch;
  }
  if (flow.shape.size() != 4) return std::nullopt;
  return flow;
}

// ---- groups of heads

// Heads that share key and value stand together; nullopt where groups have different sizes.
std::optional<std::vector<int64_t>> GroupHeads(AttendTerm& term, const HeadPlaces& keys,
                                               const HeadPlaces& values) {
  const int64_t heads = term.q.heads, width = keys.width;
  std::vector<std::vector<int64_t>> groups;
  std::vector<std::vector<int64_t>> owners;  // features of key and value of each group
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t kv = h * keys.heads / heads;
    std::vector<int64_t> own(keys.features.begin() + kv * width, keys.features.begin() + (kv + 1) * width);
    own.insert(own.end(), values.features.begin() + kv * width, values.features.begin() + (kv + 1) * width);
    const auto group = static_cast<size_t>(std::find(owners.begin(), owners.end(), own) - owners.begin());
    if (group == owners.size()) {
      owners.push_back(std::move(own));
      groups.emplace_back();
    }
    groups[group].push_back(h);
  }
  std::vector<int64_t> places(static_cast<size_t>(heads)), q;
  int64_t next = 0;
  for (const std::vector<int64_t>& group : groups) {
    if (group.size() != groups[0].size()) return std::nullopt;
    for (const int64_t h : group) {
      places[h] = next++;
      q.insert(q.end(), term.q.features.begin() + h * width, term.q.features.begin() + (h + 1) * width);
    }
  }
  term.q.features = std::move(q);
  term.k = {keys.term, static_cast<int64_t>(groups.size()), width, {}};
  term.v = {values.term, static_cast<int64_t>(groups.size()), width, {}};
  for (const std::vector<int64_t>& own : owners) {
    term.k.features.insert(term.k.features.end(), own.begin(), own.begin() + width);
    term.v.features.insert(term.v.features.end(), own.begin() + width, own.end());
  }
  return places;
}

// Scores and softmax of one file's spelling, as a specification.
bool AttendParts(RaiseCall& c, const Flow& p, const Flow& v) {
  std::string why;
  PeeledScores peeled;
  const Term& softmax = c.trace.term(p);
  if (!PeelScores(c.trace, softmax.in[0], peeled, why)) return c.Miss(why);
  const std::optional<Flow> q4 = FourAxes(c.trace, peeled.q), k4 = FourAxes(c.trace, peeled.k),
                            v4 = FourAxes(c.trace, v);
  if (!q4 || !k4 || !v4) return c.Miss("operands of attention of another rank than 3 or 4");
  AttendSpec spec{.q = {*q4, "bhsd"}, .k = {*k4, "bhds"}, .v = {*v4, "bhsd"}};
  spec.softcap = peeled.softcap;
  spec.scale = peeled.scale;
  spec.sinks = peeled.sinks;
  spec.numbers = peeled.numbers;
  spec.result = p.shape;
  spec.result.back() = v.shape.back();
  if (!peeled.seen.seen.empty()) {
    std::vector<int64_t> seen(peeled.seen.seen.begin(), peeled.seen.seen.end());
    const int64_t seq = c.trace.probe().seq;
    spec.masks.push_back(
        TensorOf<int64_t>(ElementType::kBool, {c.trace.probe().batch, peeled.seen.heads, seq, seq}, seen));
  }
  return EmitAttend(c, spec);
}

}  // namespace

bool MultiplyHeads(RaiseCall& c, const Flow& a, const Flow& b) {
  if (IsProbabilities(c.trace, a)) return AttendParts(c, a, b);
  if (a.shape.size() < 3 || a.shape.size() != b.shape.size() || a.shape.back() != b.shape[b.shape.size() - 2])
    return c.Miss("a product of two values that are no heads");
  for (size_t i = 0; i + 2 < a.shape.size(); ++i) {
    if (a.shape[i] != b.shape[i]) return c.Miss("a product of two values of other heads");
  }
  Shape shape = a.shape;
  shape.back() = b.shape.back();
  return c.Emit(Term{.kind = TermKind::kScores, .shape = shape, .in = {a, b}});
}

bool EmitAttend(RaiseCall& c, const AttendSpec& spec) {
  std::string why;
  const std::optional<TurnedHeads> q = HeadsOf(c.trace, spec.q, why);
  if (!q) return c.Miss(absl::StrCat("queries: ", why));
  const std::optional<TurnedHeads> k = HeadsOf(c.trace, spec.k, why);
  if (!k) return c.Miss(absl::StrCat("keys: ", why));
  const std::optional<TurnedHeads> v = HeadsOf(c.trace, spec.v, why);
  if (!v) return c.Miss(absl::StrCat("values: ", why));
  auto term = std::make_shared<AttendTerm>();
  const bool padded = c.trace.probe().hidden > 0;  // positions may then count from the first that is seen
  std::optional<TurnFit> turn, keys, values;
  if (!padded) {
    turn = FitTurn(*q, why);
    keys = turn ? FitTurn(*k, why) : std::nullopt;
    values = keys ? FitTurn(*v, why) : std::nullopt;
    if (!values) return c.Miss(why);
    if (turn->rope.SerializeAsString() != keys->rope.SerializeAsString())
      return c.Miss("queries and keys turn differently");
    if (values->rope.style() != Rope::ABSENT || values->factor != 1)
      return c.Miss("values are turned or scaled");
    if (turn->rope.style() != Rope::ABSENT) *term->attrs.mutable_rope() = turn->rope;
  }
  const int64_t heads = q->places.heads, width = q->places.width;
  if (k->places.width != width || v->places.width != width)
    return c.Miss("keys and values of different widths");
  if (k->places.heads != v->places.heads || k->places.heads == 0 || heads % k->places.heads != 0)
    return c.Miss("heads that do not divide by those of the keys");
  SeenMask seen;
  const int64_t seq = c.trace.probe().seq;
  const Shape scores = {c.trace.probe().batch, heads, seq, seq};
  for (const OnnxTensor& mask : spec.masks) {
    if (!HideBy(c.trace, mask, scores, kHidden, seen, why)) return c.Miss(why);
  }
  if (seen.seen.empty() && (spec.causal || spec.window > 0))
    seen.seen.assign(ElementCount({scores[0], seq * seq}), true);
  for (size_t i = 0; i < seen.seen.size() && (spec.causal || spec.window > 0); ++i) {
    const auto at = static_cast<int64_t>(i) % (seq * seq), place = at / seq, key = at % seq;
    if ((spec.causal && key > place) || (spec.window > 0 && place - key >= spec.window)) seen.seen[i] = false;
  }
  AttentionAttrs& attrs = term->attrs;
  if (!FitMask(c.trace, seen, attrs, why)) return c.Miss(why);
  if (spec.window > attrs.window()) attrs.set_window(spec.window);
  const double usual = 1 / std::sqrt(static_cast<double>(width));
  const double scale = padded ? usual : spec.scale * turn->factor * keys->factor;
  const bool plain = std::abs(scale - usual) <= 1e-5 * usual;
  attrs.set_scale(plain ? usual : scale);
  attrs.set_scale_rule(plain ? AttentionAttrs::HEAD_DIM : AttentionAttrs::EXPLICIT);
  attrs.set_softcap(spec.softcap);
  term->q = q->places;
  const std::optional<std::vector<int64_t>> places = GroupHeads(*term, k->places, v->places);
  if (!places) return c.Miss("keys are shared by groups of different sizes");
  term->places = *places;
  term->sinks = spec.sinks;
  if (spec.sinks != nullptr) {
    std::vector<Run> runs(places->size());
    for (size_t h = 0; h < places->size(); ++h) runs[(*places)[h]] = {static_cast<int64_t>(h), 1, 1};
    term->sinks = Take(spec.sinks, 0, IndexMap(std::move(runs)));
  }
  term->numbers = spec.numbers;
  // Features [heads, width] of a token; the file's axes are a view of them.
  Flow flow{.shape = spec.result};
  std::vector<int64_t> index(static_cast<size_t>(flow.count()));
  const int64_t batch = c.trace.probe().batch;
  if (flow.count() != batch * seq * heads * width)
    return c.Miss("attention of another size than its queries");
  const size_t head_axis = spec.q.axes.find('h');
  for (int64_t i = 0; i < flow.count(); ++i) {
    const int64_t d = i % width, x = i / width;
    const bool heads_first = head_axis == 1;  // bhsd, else bshd
    const int64_t s = heads_first ? x % seq : x / heads % seq;
    const int64_t h = heads_first ? x / seq % heads : x % heads;
    const int64_t b = x / (seq * heads);
    index[i] = ((b * seq + s) * heads + (*places)[h]) * width + d;
  }
  bool same = true;
  for (size_t i = 0; same && i < index.size(); ++i) same = index[i] == static_cast<int64_t>(i);
  const Flow own =
      c.New(Term{.kind = TermKind::kAttend, .shape = {batch, seq, heads * width}, .attend = term});
  flow.term = own.term;
  flow.parts[0].index = same ? nullptr : std::make_shared<const std::vector<int64_t>>(std::move(index));
  return c.Out(0, std::move(flow));
}

}  // namespace twinforge
