// Operators that move elements: of flows by the operator's own kernel run on places, of weights in the
// program.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "importers/onnx/rules.h"
#include "onnx/onnx-ml.pb.h"
#include "weights/build.h"

namespace twinforge {
namespace {

int64_t Place(int64_t axis, int64_t rank) { return axis < 0 ? axis + rank : axis; }

// A rule of one moving operator, over its weight.
using WeightRule = bool (*)(RaiseCall& c, const WeightPtr& x);

bool MoveEither(RaiseCall& c, WeightRule weight) {
  const WeightPtr x = c.WeightAt(0);
  if (x != nullptr) return weight(c, x);
  return c.FlowAt(0) != nullptr ? c.Move(0) : false;
}

bool WeightTranspose(RaiseCall& c, const WeightPtr& x) {
  std::vector<int64_t> perm(static_cast<size_t>(x->rank()));
  std::iota(perm.rbegin(), perm.rend(), 0);
  perm = c.Ints("perm").value_or(perm);
  std::vector<int64_t> sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] != static_cast<int64_t>(i)) return false;
  }
  return static_cast<int64_t>(perm.size()) == x->rank() && c.OutWeight(0, Transpose(x, perm));
}

bool OutReshaped(RaiseCall& c, const WeightPtr& x, const Shape& shape) {
  const std::optional<int64_t> count = CheckedElementCount(shape);
  return count == x->element_count() && c.OutWeight(0, Reshape(x, shape));
}

bool WeightReshape(RaiseCall& c, const WeightPtr& x) {
  std::optional<std::vector<int64_t>> shape = c.IntegersAt(1);
  if (!shape) return false;
  int64_t known = 1, free = -1;
  for (size_t i = 0; i < shape->size(); ++i) {
    int64_t& extent = (*shape)[i];
    if (extent == 0 && c.Int("allowzero", 0) == 0 && static_cast<int64_t>(i) < x->rank())
      extent = x->shape()[i];
    if (extent == -1) {
      free = static_cast<int64_t>(i);
    } else if (extent <= 0 || extent > x->element_count()) {
      return false;
    } else {
      known *= extent;
      if (known > x->element_count()) return false;
    }
  }
  if (free >= 0) (*shape)[free] = x->element_count() / known;
  return OutReshaped(c, x, *shape);
}

// The axes of Squeeze and Unsqueeze: an attribute until opset 12, then an input.
std::optional<std::vector<int64_t>> AxesOfCall(RaiseCall& c) {
  return c.Has(1) ? c.IntegersAt(1) : c.Ints("axes");
}

bool WeightSqueeze(RaiseCall& c, const WeightPtr& x) {
  const std::optional<std::vector<int64_t>> axes = AxesOfCall(c);
  Shape shape;
  for (int64_t i = 0; i < x->rank(); ++i) {
    const bool named = axes && std::any_of(axes->begin(), axes->end(),
                                           [&](int64_t axis) { return Place(axis, x->rank()) == i; });
    if (x->shape()[i] == 1 && (named || !axes)) continue;
    shape.push_back(x->shape()[i]);
  }
  return OutReshaped(c, x, shape);
}

bool WeightUnsqueeze(RaiseCall& c, const WeightPtr& x) {
  const std::optional<std::vector<int64_t>> axes = AxesOfCall(c);
  if (!axes) return false;
  const int64_t rank = x->rank() + static_cast<int64_t>(axes->size());
  Shape shape(static_cast<size_t>(rank), 0);
  for (const int64_t axis : *axes) {
    const int64_t place = Place(axis, rank);
    if (place < 0 || place >= rank) return false;
    shape[place] = 1;
  }
  size_t next = 0;
  for (int64_t& extent : shape) {
    if (extent == 0 && next < x->shape().size()) extent = x->shape()[next++];
  }
  return OutReshaped(c, x, shape);
}

bool WeightFlatten(RaiseCall& c, const WeightPtr& x) {
  const int64_t axis = Place(c.Int("axis", 1), x->rank());
  if (axis < 0 || axis > x->rank()) return false;
  int64_t rows = 1;
  for (int64_t i = 0; i < axis; ++i) rows *= x->shape()[i];
  return OutReshaped(c, x, {rows, x->element_count() / rows});
}

bool WeightSlice(RaiseCall& c, const WeightPtr& x) {
  const bool inputs = c.Has(1);
  const auto starts = inputs ? c.IntegersAt(1) : c.Ints("starts");
  const auto ends = inputs ? c.IntegersAt(2) : c.Ints("ends");
  if (!starts || !ends || starts->size() != ends->size()) return false;
  std::vector<int64_t> axes(starts->size()), steps(starts->size(), 1);
  std::iota(axes.begin(), axes.end(), 0);
  if (inputs && c.Has(3)) axes = c.IntegersAt(3).value_or(std::vector<int64_t>());
  if (!inputs) axes = c.Ints("axes").value_or(axes);
  if (inputs && c.Has(4)) steps = c.IntegersAt(4).value_or(std::vector<int64_t>());
  if (axes.size() != starts->size() || steps.size() != starts->size()) return false;
  WeightPtr y = x;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t axis = Place(axes[i], x->rank());
    if (axis < 0 || axis >= x->rank() || steps[i] < 1) return false;
    const int64_t size = y->shape()[axis];
    const auto place = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size); };
    const int64_t start = place((*starts)[i]), end = place(std::max((*ends)[i], -size - 1));
    if (end <= start) return false;
    y = Take(y, axis, IndexMap::Slice(start, (end - start + steps[i] - 1) / steps[i], steps[i]));
  }
  return c.OutWeight(0, y);
}

bool WeightSplit(RaiseCall& c, const WeightPtr& x) {
  const int64_t axis = Place(c.Int("axis", 0), x->rank());
  if (axis < 0 || axis >= x->rank()) return false;
  std::optional<std::vector<int64_t>> sizes = c.Has(1) ? c.IntegersAt(1) : c.Ints("split");
  const auto outputs = static_cast<int64_t>(c.node.outputs.size());
  if (!sizes) {
    const int64_t each = (x->shape()[axis] + outputs - 1) / outputs;
    sizes.emplace(static_cast<size_t>(outputs), each);
    sizes->back() = x->shape()[axis] - each * (outputs - 1);
  }
  if (static_cast<int64_t>(sizes->size()) != outputs) return false;
  int64_t at = 0;
  for (int64_t i = 0; i < outputs; ++i) {
    const int64_t size = (*sizes)[i];
    if (size < 1 || at + size > x->shape()[axis]) return false;
    c.OutWeight(static_cast<int>(i), Slice(x, axis, at, size));
    at += size;
  }
  return at == x->shape()[axis];
}

bool WeightSame(RaiseCall& c, const WeightPtr& x) { return c.OutWeight(0, x); }

bool WeightCast(RaiseCall& c, const WeightPtr& x) {
  const std::optional<ElementType> to = ElementTypeFromCode(c.Int("to", 0));
  const std::optional<DType> type = to ? StoredType(*to) : std::nullopt;
  return type && c.OutWeight(0, Cast(x, *type));
}

// What expands a weight makes a flow of it: sinks, and what a batch repeats.
bool WeightExpand(RaiseCall& c, const WeightPtr& x) {
  const Flow own = c.New(Term{.kind = TermKind::kParam, .shape = x->shape(), .kernel = x});
  std::vector<int64_t> places(static_cast<size_t>(own.count()));
  std::iota(places.begin(), places.end(), 0);
  const auto moved =
      c.trace.Compute(c.node, {{0, TensorOf<int64_t>(ElementType::kInt64, own.shape, places)}});
  if (!moved) return false;
  Flow flow = own;
  flow.shape = (*moved)[0].shape();
  flow.parts[0].index = std::make_shared<const std::vector<int64_t>>(Elements<int64_t>((*moved)[0]));
  return c.Out(0, std::move(flow));
}

bool TransposeRule(RaiseCall& c) { return MoveEither(c, WeightTranspose); }
bool ReshapeRule(RaiseCall& c) { return MoveEither(c, WeightReshape); }
bool SqueezeRule(RaiseCall& c) { return MoveEither(c, WeightSqueeze); }
bool UnsqueezeRule(RaiseCall& c) { return MoveEither(c, WeightUnsqueeze); }
bool FlattenRule(RaiseCall& c) { return MoveEither(c, WeightFlatten); }
bool SliceRule(RaiseCall& c) { return MoveEither(c, WeightSlice); }
bool SplitRule(RaiseCall& c) { return MoveEither(c, WeightSplit); }
bool ExpandRule(RaiseCall& c) { return MoveEither(c, WeightExpand); }

bool SameRule(RaiseCall& c) {
  if (c.WeightAt(0) != nullptr) return WeightSame(c, c.WeightAt(0));
  return c.FlowAt(0) != nullptr && c.Out(0, *c.FlowAt(0));
}

bool CastRule(RaiseCall& c) {
  if (c.WeightAt(0) != nullptr) return WeightCast(c, c.WeightAt(0));
  const Flow* x = c.FlowAt(0);
  if (x == nullptr) return false;
  const std::optional<ElementType> to = ElementTypeFromCode(c.Int("to", 0));
  const TermKind kind = c.trace.term(*x).kind;
  const bool ids = kind == TermKind::kTokens || kind == TermKind::kTopPlace;
  if (!to || (ids ? !IsIntegerElement(*to) : !IsFloatingElement(*to)))
    return c.Miss("a cast that changes what the numbers are");
  return c.Out(0, *x);
}

bool ShapeRule(RaiseCall& c) {
  Shape shape;
  if (const Flow* x = c.FlowAt(0)) {
    shape = x->shape;
  } else if (c.WeightAt(0) != nullptr) {
    shape = c.WeightAt(0)->shape();
  } else {
    return false;
  }
  const auto rank = static_cast<int64_t>(shape.size());
  const int64_t start = std::clamp<int64_t>(Place(c.Int("start", 0), rank), 0, rank);
  const int64_t end = std::clamp<int64_t>(Place(c.Int("end", rank), rank), start, rank);
  return c.OutKnown(0, Int64Tensor({shape.begin() + start, shape.begin() + end}));
}

// Rows of a table by tokens or by known places; or a move.
bool GatherRule(RaiseCall& c) {
  const WeightPtr table = c.WeightAt(0);
  if (table == nullptr) return c.Real(0) != nullptr ? c.Move(0) : false;
  const int64_t axis = Place(c.Int("axis", 0), table->rank());
  if (const Flow* ids = c.Real(1)) {
    const Term& tokens = c.trace.term(*ids);
    if (tokens.kind == TermKind::kTopPlace && axis == 0) return GatherChosen(c, table, *ids, ids->shape);
    if (tokens.kind != TermKind::kTokens || !ids->plain() || axis != 0 || table->rank() != 2)
      return c.Miss("rows that are chosen by what is computed");
    Shape shape = ids->shape;
    shape.push_back(table->shape()[1]);
    Flow rows = c.New(Term{.kind = TermKind::kEmbed,
                           .shape = {c.trace.probe().batch, c.trace.probe().seq, table->shape()[1]},
                           .in = {*ids},
                           .kernel = table,
                           .number = 1});
    rows.shape = shape;
    return c.Out(0, std::move(rows));
  }
  const std::optional<std::vector<int64_t>> places = c.IntegersAt(1);
  if (!places || !c.In(1).known || axis < 0 || axis >= table->rank()) return false;
  std::vector<Run> runs;
  for (const int64_t place : *places) {
    const int64_t at = Place(place, table->shape()[axis]);
    if (at < 0 || at >= table->shape()[axis]) return false;
    runs.push_back({at, 1, 1});
  }
  const Shape& chosen = c.In(1).known->shape();
  if (c.In(1).fixed) {
    Shape shape = table->shape();
    shape.erase(shape.begin() + axis);
    shape.insert(shape.begin() + axis, chosen.begin(), chosen.end());
    if (!runs.empty()) c.OutWeight(0, Reshape(Take(table, axis, IndexMap(std::move(runs))), shape));
    return !places->empty();
  }
  if (axis != 0 || table->rank() != 2) return false;
  Shape shape = chosen;
  shape.push_back(table->shape()[1]);
  return c.Emit(Term{.kind = TermKind::kRows, .shape = shape, .kernel = table, .known = *c.In(1).known});
}

bool ConcatWeights(RaiseCall& c) {
  std::vector<WeightPtr> parts;
  for (int i = 0; i < c.inputs(); ++i) {
    if (c.WeightAt(i) == nullptr) return false;
    parts.push_back(c.WeightAt(i));
  }
  const int64_t axis = Place(c.Int("axis", 0), parts[0]->rank());
  for (const WeightPtr& part : parts) {
    if (part->dtype() != parts[0]->dtype() || part->rank() != parts[0]->rank()) return false;
    for (int64_t i = 0; i < part->rank(); ++i) {
      if (i != axis && part->shape()[i] != parts[0]->shape()[i]) return false;
    }
  }
  return axis >= 0 && axis < parts[0]->rank() && c.OutWeight(0, Concat(axis, std::move(parts)));
}

// Flows over one term, joined: places with places, coefficients with coefficients.
bool JoinFlows(RaiseCall& c, const std::vector<std::pair<int, Flow>>& flows) {
  size_t parts = 0;
  for (const auto& [i, flow] : flows) parts = std::max(parts, flow.parts.size());
  Flow joined{.term = flows[0].second.term};
  joined.parts.clear();
  for (size_t p = 0; p < parts; ++p) {
    std::map<int, OnnxTensor> places, coefs;
    for (const auto& [i, flow] : flows) {
      const auto count = static_cast<size_t>(flow.count());
      std::vector<int64_t> index(count, 0);
      std::vector<double> coef(count, 0);
      for (size_t k = 0; p < flow.parts.size() && k < count; ++k) {
        index[k] = IndexAt(flow.parts[p], static_cast<int64_t>(k));
        coef[k] = flow.factor * CoefAt(flow.parts[p], static_cast<int64_t>(k));
      }
      places.emplace(i, TensorOf<int64_t>(ElementType::kInt64, flow.shape, index));
      coefs.emplace(i, TensorOf<double>(ElementType::kDouble, flow.shape, coef));
    }
    const auto index = c.trace.Compute(c.node, places), coef = c.trace.Compute(c.node, coefs);
    if (!index || !coef) return c.Miss("parts that do not join");
    joined.shape = (*index)[0].shape();
    std::vector<double> numbers = Elements<double>((*coef)[0]);
    const bool ones = std::all_of(numbers.begin(), numbers.end(), [](double x) { return x == 1; });
    joined.parts.push_back(
        {std::make_shared<const std::vector<int64_t>>(Elements<int64_t>((*index)[0])),
         ones ? nullptr : std::make_shared<const std::vector<double>>(std::move(numbers))});
  }
  return c.Out(0, std::move(joined));
}

bool ConcatRule(RaiseCall& c) {
  if (ConcatWeights(c)) return true;
  std::vector<std::pair<int, Flow>> flows;
  for (int i = 0; i < c.inputs(); ++i) {
    const Flow* flow = c.FlowAt(i);
    if (flow != nullptr) {
      flows.emplace_back(i, *flow);
    } else if (!c.Has(i) || !c.In(i).known || c.In(i).known->count() != 0) {
      return flows.empty() ? false : c.Miss("joined with what is no flow");
    }
  }
  if (flows.empty()) return false;
  if (flows.size() == 1) return c.Out(0, flows[0].second);  // the rest is an empty cache
  // A value given twice has one slot: its places would stand in for both.
  for (size_t i = 0; i < flows.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (c.node.inputs[flows[i].first] == c.node.inputs[flows[k].first] &&
          flows.size() != static_cast<size_t>(c.inputs()))
        return c.Miss("joined with itself and an empty value");
    }
  }
  bool one = true;
  for (const auto& [i, flow] : flows) one = one && flow.term == flows[0].second.term;
  if (one) return JoinFlows(c, flows);
  const auto rank = static_cast<int64_t>(flows[0].second.shape.size());
  if (rank == 0 || flows[1].second.shape.size() != flows[0].second.shape.size() || flows.size() != 2 ||
      Place(c.Int("axis", 0), rank) != rank - 1)
    return c.Miss("different values joined along another axis than the last");
  Shape shape = flows[0].second.shape;
  shape.back() += flows[1].second.shape.back();
  return c.Emit(Term{.kind = TermKind::kConcat, .shape = shape, .in = {flows[0].second, flows[1].second}});
}

}  // namespace

absl::Span<const RaiseRow> MoveRules() {
  static constexpr RaiseRow kRows[] = {
      {"Transpose", TransposeRule}, {"Reshape", ReshapeRule}, {"Squeeze", SqueezeRule},
      {"Unsqueeze", UnsqueezeRule}, {"Flatten", FlattenRule}, {"Slice", SliceRule},
      {"Split", SplitRule},         {"Expand", ExpandRule},   {"Tile", ExpandRule},
      {"Identity", SameRule},       {"Dropout", SameRule},    {"Cast", CastRule},
      {"Shape", ShapeRule},         {"Gather", GatherRule},   {"Concat", ConcatRule},
  };
  return kRows;
}

}  // namespace twinforge
