// Parts of tensors: cut, padded, gathered, scattered, chosen.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "onnx/infer/rule.h"

namespace twinforge {
namespace {

constexpr int64_t kNoEnd = INT32_MAX;  // what exporters write for "to the end", or more

// ---- Slice

struct SliceSpec {
  std::optional<KnownDims> starts, ends;
  std::optional<std::vector<int64_t>> axes, steps;
};

SliceSpec SpecOf(InferCall& c) {
  SliceSpec spec;
  if (c.opset() < 10) {
    const std::vector<int64_t> starts = c.Ints("starts").value_or(std::vector<int64_t>()),
                               ends = c.Ints("ends").value_or(std::vector<int64_t>());
    spec.starts.emplace(starts.begin(), starts.end());
    spec.ends.emplace(ends.begin(), ends.end());
    spec.axes = c.Ints("axes");
  } else {
    spec.starts = c.ElementsOf(1);
    spec.ends = c.ElementsOf(2);
    if (c.Has(3)) spec.axes = c.In(3).Integers();
    if (c.Has(4)) spec.steps = c.In(4).Integers();
  }
  if (!spec.starts && spec.ends) spec.starts = KnownDims(spec.ends->size());
  if (!spec.ends && spec.starts) spec.ends = KnownDims(spec.starts->size());
  const bool counts = c.opset() < 10 || !c.Has(3);
  if (!spec.axes && spec.starts && counts) {
    spec.axes.emplace();
    for (size_t d = 0; d < spec.starts->size(); ++d) spec.axes->push_back(static_cast<int64_t>(d));
  }
  if (!spec.steps && spec.starts && (c.opset() < 10 || !c.Has(4)))
    spec.steps = std::vector<int64_t>(spec.starts->size(), 1);
  return spec;
}

// A bound within [0, size], of steps forwards. The axis is taken not to be empty.
KnownDim ForwardBound(InferCall& c, const KnownDim& at, const KnownDim& size) {
  if (!at) return std::nullopt;
  const bool fixed = at->value().has_value(), sized = size && size->value();
  const int64_t number = at->value().value_or(0), extent = sized ? size->value().value_or(0) : 0;
  if (fixed && number >= kNoEnd && (!sized || extent <= number)) return size;
  if (fixed && number <= -kNoEnd) return Dim(0);
  if (fixed && sized) return Dim(std::clamp(number < 0 ? number + extent : number, int64_t{0}, extent));
  if (IsNumber(at, 0) || (IsNumber(at, 1) && size && DimLeast(*size) == 0)) return at;
  if (DimLeast(*at).value_or(-1) >= 0) return c.Min(at, size);
  if (DimMost(*at).value_or(0) >= 0 || !size) return std::nullopt;
  const KnownDim from_end = DimSum(size, at);
  if (!from_end) return std::nullopt;
  const int64_t least = DimLeast(*from_end).value_or(-2);
  return least >= 0 || (IsNumber(at, -1) && least == -1) ? from_end : std::nullopt;
}

// From one size to a larger one, of an axis that may be too short for both, as masks are cut from constants.
// That it begins within the axis is taken for granted.
KnownDim CutAhead(InferCall& c, const KnownDim& start, const KnownDim& end, const KnownDim& size) {
  const KnownDim asked = DimDifference(end, start);
  if (!asked || !size || !size->value() || DimLeast(*start).value_or(-1) < 0 ||
      DimLeast(*asked).value_or(-1) < 0)
    return std::nullopt;
  return IsNumber(asked, 1) ? asked : c.Cut(asked, start, size);
}

KnownDim CutForwards(InferCall& c, const KnownDim& start, const KnownDim& end, const KnownDim& size,
                     int64_t step) {
  const KnownDim from = ForwardBound(c, start, size), to = ForwardBound(c, end, size);
  // The whole axis, whatever it is.
  if (IsNumber(from, 0) && end && end->value().value_or(0) >= kNoEnd) return DimCeil(size, step);
  const KnownDim length = DimDifference(to, from);
  if (!length) return std::nullopt;
  if (DimMost(*length).value_or(1) <= 0) return Dim(0);
  const int64_t least = DimLeast(*length).value_or(-2);
  if (least >= 0 || IsNumber(from, 0) || (least == -1 && size && *size == *to)) return DimCeil(length, step);
  return step == 1 ? CutAhead(c, start, end, size) : std::nullopt;
}

KnownDim CutBackwards(const KnownDim& start, const KnownDim& end, const KnownDim& size, int64_t step) {
  if (!start || !start->value() || !end || !end->value()) return std::nullopt;
  const int64_t from = start->value().value_or(0), to = end->value().value_or(0);
  if ((from == -1 || from >= kNoEnd) && to <= -kNoEnd) return DimCeil(size, -step);
  if (!size || !size->value()) return std::nullopt;
  const int64_t extent = size->value().value_or(0);
  const auto bound = [extent](int64_t at, int64_t low) {
    return std::clamp(at < 0 ? std::max(at, -extent - 1) + extent : at, low, std::max(low, extent - 1));
  };
  const int64_t distance = bound(from, 0) - bound(to, -1);
  return Dim(distance <= 0 || extent == 0 ? 0 : (distance - 1) / -step + 1);
}

// The elements that a cut of rank 1 keeps.
void CutElements(InferCall& c, const KnownDim& start, int64_t step) {
  OnnxFact& out = c.Out(0);
  const std::optional<KnownDims>& in = c.In(0).elements;
  const int64_t count = out.Number(0).value_or(-1);
  if (!in || count < 0 || !start || !start->value()) return;
  const auto size = static_cast<int64_t>(in->size());
  const int64_t first = start->value().value_or(0);
  const int64_t from = std::clamp(first < 0 ? std::max(first, -size) + size : first, int64_t{0},
                                  step > 0 ? size : std::max<int64_t>(size - 1, 0));
  out.elements.emplace();
  for (int64_t k = 0; k < count; ++k) out.elements->push_back((*in)[from + k * step]);
}

void SliceRule(InferCall& c) {
  OnnxFact& out = c.Out(0);
  out.type = c.In(0).type;
  const std::optional<int64_t> rank = c.In(0).Rank();
  if (!rank) return;
  const SliceSpec spec = SpecOf(c);
  if (!spec.axes) {  // which axes is not known: then of none the extent is
    out.shape = KnownDims(static_cast<size_t>(*rank));
    return;
  }
  const std::optional<std::vector<int64_t>> axes = c.Axes(*spec.axes, *rank);
  if (!axes) return;
  out.shape = c.In(0).shape;
  const size_t count = axes->size();
  if ((spec.starts && spec.starts->size() != count) || (spec.ends && spec.ends->size() != count) ||
      (spec.steps && spec.steps->size() != count))
    return c.Fail("starts, ends, axes and steps are not of one length");
  for (size_t i = 0; i < count; ++i) {
    KnownDim& extent = (*out.shape)[(*axes)[i]];
    const KnownDim start = spec.starts ? (*spec.starts)[i] : std::nullopt,
                   end = spec.ends ? (*spec.ends)[i] : std::nullopt;
    const int64_t step = spec.steps ? (*spec.steps)[i] : 0;
    if (spec.steps && step == 0) return c.Fail("a step is 0");
    extent = step == 0 || step == INT64_MIN ? std::nullopt
             : step > 0                     ? CutForwards(c, start, end, extent, step)
                                            : CutBackwards(start, end, extent, step);
    if (*rank == 1 && step != 0 && step != INT64_MIN) CutElements(c, start, step);
  }
  if (count == 0) out.elements = c.In(0).elements;
}

// ---- Split, Pad

void SplitRule(InferCall& c) {
  const std::optional<int64_t> rank = c.In(0).Rank();
  const int64_t outputs = c.outputs();
  for (int i = 0; i < outputs; ++i) c.Like(i, 0);
  if (!rank || outputs == 0) return;
  const std::optional<int64_t> axis = c.Axis(c.Int("axis", 0), *rank);
  if (!axis) return;
  const KnownDim size = c.In(0).Extent(*axis);
  KnownDims sizes(static_cast<size_t>(outputs));
  const std::optional<std::vector<int64_t>> fixed = c.Ints("split");
  if (c.Has(1) || fixed) {
    std::optional<KnownDims> given = c.Has(1) ? c.ElementsOf(1) : KnownDims(fixed->begin(), fixed->end());
    if (given && static_cast<int64_t>(given->size()) != outputs)
      return c.Fail("has another number of parts than outputs");
    if (given) sizes = *given;
    KnownDim sum = Dim(0);
    for (const KnownDim& part : sizes) sum = DimSum(sum, part);
    if (DimsDiffer(sum, size))
      return c.Fail(absl::StrCat("the parts are ", sum->Text(), " of ", size->Text()));
  } else if (size && size->value()) {
    // Equal parts, of which the last may be smaller.
    const int64_t part = *size->value() > 0 ? (*size->value() - 1) / outputs + 1 : 0;
    int64_t left = *size->value();
    for (KnownDim& own : sizes) {
      own = Dim(std::min(part, left));
      left -= *own->value();
    }
  } else {
    std::fill(sizes.begin(), sizes.end(), DimQuotient(size, Dim(outputs)));
  }
  size_t start = 0;
  for (int i = 0; i < outputs; ++i) {
    (*c.Out(i).shape)[*axis] = sizes[i];
    const std::optional<int64_t> part = FewElements(c.Out(i).shape);
    const std::optional<KnownDims>& elements = c.In(0).elements;
    if (*rank != 1 || !elements) continue;
    if (!part || start + static_cast<size_t>(*part) > elements->size()) break;
    c.Out(i).elements.emplace(elements->begin() + static_cast<int64_t>(start),
                              elements->begin() + static_cast<int64_t>(start) + *part);
    start += static_cast<size_t>(*part);
  }
}

void PadRule(InferCall& c) {
  OnnxFact& out = c.Out(0);
  out.type = c.In(0).type;
  const std::optional<int64_t> rank = c.In(0).Rank();
  if (!rank) return;
  std::optional<KnownDims> pads;
  if (c.opset() >= 11) {
    pads = c.ElementsOf(1);
  } else if (const auto given = c.Ints(c.opset() < 2 ? "paddings" : "pads")) {
    pads.emplace(given->begin(), given->end());
  }
  std::vector<int64_t> axes;
  if (c.opset() >= 11 && c.Has(3)) {
    const std::optional<std::vector<int64_t>> given = c.In(3).Integers();
    if (!given) {
      out.shape = KnownDims(static_cast<size_t>(*rank));
      return;
    }
    axes = c.Axes(*given, *rank).value_or(std::vector<int64_t>());
  } else {
    for (int64_t d = 0; d < *rank; ++d) axes.push_back(d);
  }
  if (!c.ok()) return;
  out.shape = c.In(0).shape;
  if (pads && pads->size() != 2 * axes.size()) return c.Fail("pads are not two for each axis");
  for (size_t i = 0; i < axes.size(); ++i) {
    KnownDim& extent = (*out.shape)[axes[i]];
    extent = pads ? DimSum(extent, DimSum((*pads)[i], (*pads)[axes.size() + i])) : std::nullopt;
  }
}

void CenterCropPadRule(InferCall& c) {
  OnnxFact& out = c.Out(0);
  out.type = c.In(0).type;
  const std::optional<int64_t> rank = c.In(0).Rank();
  if (!rank) return;
  std::vector<int64_t> all;
  for (int64_t d = 0; d < *rank; ++d) all.push_back(d);
  const std::optional<std::vector<int64_t>> axes = c.Axes(c.Ints("axes").value_or(all), *rank);
  if (!axes) return;
  out.shape = c.In(0).shape;
  const std::optional<KnownDims> sizes = c.ElementsOf(1);
  if (sizes && sizes->size() != axes->size()) return c.Fail("its shape is not one extent for each axis");
  for (size_t i = 0; i < axes->size(); ++i) (*out.shape)[(*axes)[i]] = sizes ? (*sizes)[i] : std::nullopt;
}

// ---- Gather, Scatter

void GatherRule(InferCall& c) {
  OnnxFact& out = c.Out(0);
  out.type = c.In(0).type;
  const OnnxFact &data = c.In(0), &at = c.In(1);
  if (!data.shape) return;
  const std::optional<int64_t> axis = c.Axis(c.Int("axis", 0), *data.Rank());
  if (!axis || !at.shape) return;
  KnownDims shape(data.shape->begin(), data.shape->begin() + *axis);
  shape.insert(shape.end(), at.shape->begin(), at.shape->end());
  shape.insert(shape.end(), data.shape->begin() + *axis + 1, data.shape->end());
  out.shape = std::move(shape);
  if (*data.Rank() != 1 || !data.elements || !at.elements) return;
  const auto size = static_cast<int64_t>(data.elements->size());
  out.elements.emplace();
  for (const KnownDim& index : *at.elements) {
    const std::optional<int64_t> number = index ? index->value() : std::nullopt;
    if (number && (*number < -size || *number >= size))
      return c.Fail(absl::StrCat("takes element ", *number, " of ", size));
    out.elements->push_back(!number ? KnownDim() : (*data.elements)[*number < 0 ? *number + size : *number]);
  }
}

void GatherElementsRule(InferCall& c) {
  c.Out(0).type = c.In(0).type;
  c.Out(0).shape = c.In(1).shape;
}

void GatherNdRule(InferCall& c) {
  OnnxFact& out = c.Out(0);
  out.type = c.In(0).type;
  const OnnxFact &data = c.In(0), &at = c.In(1);
  const std::optional<int64_t> places = at.Number(-1);
  const int64_t batch = c.Int("batch_dims", 0);
  if (!data.shape || !places) return;
  if (batch < 0 || batch >= *at.Rank() || *places < 0 || batch + *places > *data.Rank())
    return c.Fail("its indices have more places than the input has axes");
  KnownDims shape(at.shape->begin(), at.shape->end() - 1);
  for (int64_t d = 0; d < batch; ++d) c.Meet(shape[d], (*data.shape)[d], "the batches differ");
  shape.insert(shape.end(), data.shape->begin() + batch + *places, data.shape->end());
  out.shape = std::move(shape);
}

void InPlaceRule(InferCall& c) { c.Like(0, 0); }

void OneHotRule(InferCall& c) {
  OnnxFact& out = c.Out(0);
  out.type = c.In(2).type;
  const std::optional<int64_t> rank = c.In(0).Rank();
  if (!rank) return;
  const std::optional<int64_t> axis = c.Axis(c.Int("axis", -1), *rank + 1);
  if (!axis) return;
  KnownDim depth = c.Scalar(1);
  const std::optional<std::vector<double>> floats = c.Doubles(1);
  if (!depth && floats && floats->size() == 1 && (*floats)[0] >= 0 && (*floats)[0] < 1e9)
    depth = Dim(static_cast<int64_t>((*floats)[0]));
  out.shape = c.In(0).shape;
  out.shape->insert(out.shape->begin() + *axis, depth);
}

void ArrayFeatureExtractorRule(InferCall& c) {
  OnnxFact& out = c.Out(0);
  out.type = c.In(0).type;
  if (!c.In(0).shape || c.In(0).shape->empty()) return;
  out.shape = *c.In(0).Rank() == 1 ? KnownDims{Dim(1), KnownDim()} : *c.In(0).shape;
  out.shape->back() = c.In(1).shape ? DimProduct(*c.In(1).shape) : std::nullopt;
}

// ---- chosen by value

void TopKRule(InferCall& c) {
  c.Out(0).type = c.In(0).type;
  c.Out(1).type = ElementType::kInt64;
  const std::optional<int64_t> rank = c.In(0).Rank();
  if (!rank) return;
  const std::optional<int64_t> axis = c.Axis(c.Int("axis", -1), *rank);
  if (!axis) return;
  KnownDims shape = *c.In(0).shape;
  shape[*axis] = c.opset() < 10 ? KnownDim(Dim(c.Int("k", 0))) : c.Scalar(1);
  c.Out(0).shape = c.Out(1).shape = std::move(shape);
}

void NonZeroRule(InferCall& c) {
  OnnxFact& out = c.Out(0);
  out.type = ElementType::kInt64;
  out.shape = KnownDims(2);
  const std::optional<int64_t> rank = c.In(0).Rank();
  if (rank) (*out.shape)[0] = Dim(std::max<int64_t>(*rank, 1));
  const std::optional<std::vector<int64_t>> numbers = c.In(0).Integers();
  if (!numbers) return;
  const auto zeros = std::count(numbers->begin(), numbers->end(), 0);
  (*out.shape)[1] = Dim(static_cast<int64_t>(numbers->size()) - zeros);
}

void UniqueRule(InferCall& c) {
  c.Out(0).type = c.In(0).type;
  for (int i = 1; i < c.outputs(); ++i) {
    c.Out(i).type = ElementType::kInt64;
    c.Out(i).shape = KnownDims(1);
  }
  const std::optional<int64_t> rank = c.In(0).Rank();
  if (!c.HasAttr("axis")) {
    c.Out(0).shape = KnownDims(1);
    if (rank) c.Out(2).shape = KnownDims{DimProduct(*c.In(0).shape)};
  } else if (rank) {
    const std::optional<int64_t> axis = c.Axis(c.Int("axis", 0), *rank);
    if (!axis) return;
    c.Out(0).shape = c.In(0).shape;
    (*c.Out(0).shape)[*axis].reset();
    c.Out(2).shape = KnownDims{c.In(0).Extent(*axis)};
  }
}

void CompressRule(InferCall& c) {
  OnnxFact& out = c.Out(0);
  out.type = c.In(0).type;
  KnownDim kept;
  if (const std::optional<std::vector<int64_t>> which = c.In(1).Integers())
    kept = Dim(static_cast<int64_t>(which->size()) - std::count(which->begin(), which->end(), 0));
  if (!c.HasAttr("axis")) {
    out.shape = KnownDims{kept};
    return;
  }
  const std::optional<int64_t> rank = c.In(0).Rank();
  if (!rank) return;
  const std::optional<int64_t> axis = c.Axis(c.Int("axis", 0), *rank);
  if (!axis) return;
  out.shape = c.In(0).shape;
  (*out.shape)[*axis] = kept;
}

constexpr InferRow kRows[] = {
    {"Slice", SliceRule},
    {"Split", SplitRule},
    {"Pad", PadRule},
    {"CenterCropPad", CenterCropPadRule},
    {"Gather", GatherRule},
    {"GatherElements", GatherElementsRule},
    {"GatherND", GatherNdRule},
    {"Scatter", InPlaceRule},
    {"ScatterElements", InPlaceRule},
    {"ScatterND", InPlaceRule},
    {"TensorScatter", InPlaceRule},
    {"OneHot", OneHotRule},
    {"ArrayFeatureExtractor", ArrayFeatureExtractorRule, "ai.onnx.ml"},
    {"TopK", TopKRule},
    {"NonZero", NonZeroRule},
    {"Unique", UniqueRule},
    {"Compress", CompressRule},
};

}  // namespace

absl::Span<const InferRow> PartRules() { return kRows; }

}  // namespace twinforge
