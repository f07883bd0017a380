// The same elements in other shapes, and tensors made from a shape: where sizes turn into numbers and back.
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "onnx/infer/rule.h"
#include "onnx/onnx-ml.pb.h"

namespace twinforge {
namespace {

// Input i as a shape of the output: its elements, or as many unknown extents as it has elements.
std::optional<KnownDims> AsShape(InferCall& c, int i) {
  if (c.In(i).elements) return c.In(i).elements;
  const std::optional<int64_t> count = c.In(i).Number(0);
  if (c.In(i).Rank() != 1 || !count || *count < 0 || *count > kFewElements) return std::nullopt;
  return KnownDims(static_cast<size_t>(*count));
}

// Axes are an input since operator set 13, an attribute before. nullopt where not known.
std::optional<std::vector<int64_t>> AxesGiven(InferCall& c) {
  if (c.opset() < 13) return c.Ints("axes").value_or(std::vector<int64_t>());
  return c.Has(1) ? c.In(1).Integers() : std::vector<int64_t>();
}
std::optional<int64_t> AxesCount(InferCall& c) { return c.In(1).Rank() == 0 ? 1 : c.In(1).Number(0); }

void ShapeRule(InferCall& c) {
  OnnxFact& out = c.Out(0);
  out.type = ElementType::kInt64;
  out.shape = KnownDims(1);
  const std::optional<int64_t> rank = c.In(0).Rank();
  if (!rank) return;
  const auto bound = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + *rank : at, 0, *rank); };
  const int64_t start = bound(c.Int("start", 0)), end = std::max(start, bound(c.Int("end", *rank)));
  (*out.shape)[0] = Dim(end - start);
  const KnownDims& shape = *c.In(0).shape;
  out.elements.emplace(shape.begin() + start, shape.begin() + end);
}

void SizeRule(InferCall& c) {
  OnnxFact& out = c.Out(0);
  out.type = ElementType::kInt64;
  out.shape = KnownDims();
  if (c.In(0).shape) out.elements = KnownDims{DimProduct(*c.In(0).shape)};
}

// ---- Reshape

// What is left of two lists of extents when equal ones are struck out of both.
void StrikeEqual(KnownDims& from, KnownDims& to) {
  for (size_t i = 0; i < to.size();) {
    const auto same = to[i] ? std::find(from.begin(), from.end(), to[i]) : from.end();
    if (same == from.end()) {
      ++i;
      continue;
    }
    from.erase(same);
    to.erase(to.begin() + static_cast<int64_t>(i));
  }
}

// The one extent that the others leave.
KnownDim Remaining(KnownDims from, KnownDims to) {
  StrikeEqual(from, to);
  return DimQuotient(DimProduct(from), DimProduct(to));
}

void ReshapeRule(InferCall& c) {
  OnnxFact& out = c.Out(0);
  out.type = c.In(0).type;
  std::optional<KnownDims> wanted;
  if (c.opset() < 5) {
    const std::optional<std::vector<int64_t>> given = c.Ints("shape");
    if (given) wanted.emplace(given->begin(), given->end());
  } else {
    wanted = AsShape(c, 1);
  }
  if (!wanted) return;
  const bool keeps_zero = c.Int("allowzero", 0) != 0;
  const std::optional<KnownDims>& in = c.In(0).shape;
  KnownDims from = in.value_or(KnownDims()), to;  // the extents that do not stay where they are
  size_t kept = 0;
  std::vector<size_t> open;
  for (size_t i = 0; i < wanted->size(); ++i) {
    KnownDim& extent = (*wanted)[i];
    if (IsNumber(extent, 0) && !keeps_zero) {
      if (in && i >= in->size()) return c.Fail("keeps an axis that the input has not");
      extent = in ? (*in)[i] : std::nullopt;
      if (in) from.erase(from.begin() + static_cast<int64_t>(i - kept++));
    } else if (!extent || IsNumber(extent, -1)) {
      extent.reset();
      open.push_back(i);
    } else {
      to.push_back(extent);
    }
  }
  if (in && open.empty() && DimsDiffer(DimProduct(from), DimProduct(to))) {
    return c.Fail(absl::StrCat("cannot make ", ShapeOfFact({std::nullopt, wanted, std::nullopt}), " of ",
                               ShapeOfFact(c.In(0))));
  }
  // Of a tensor without elements an open axis could be anything.
  const bool empty = in && std::find(in->begin(), in->end(), KnownDim(Dim(0))) != in->end();
  if (in && open.size() == 1 && !empty) (*wanted)[open[0]] = Remaining(from, to);
  out.shape = std::move(wanted);
  out.elements = c.In(0).elements;
}

void FlattenRule(InferCall& c) {
  OnnxFact& out = c.Out(0);
  out.type = c.In(0).type;
  out.shape = KnownDims(2);
  const std::optional<int64_t> rank = c.In(0).Rank();
  if (!rank) return;
  const int64_t given = c.Int("axis", 1);
  if (given < -*rank || given > *rank) return c.Fail(absl::StrCat("axis ", given, " of ", *rank));
  const int64_t axis = given < 0 ? given + *rank : given;
  const KnownDims& shape = *c.In(0).shape;
  out.shape = KnownDims{DimProduct(KnownDims(shape.begin(), shape.begin() + axis)),
                        DimProduct(KnownDims(shape.begin() + axis, shape.end()))};
  out.elements = c.In(0).elements;
}

void SqueezeRule(InferCall& c) {
  OnnxFact& out = c.Out(0);
  out.type = c.In(0).type;
  const std::optional<int64_t> rank = c.In(0).Rank();
  if (!rank) return;
  const KnownDims& in = *c.In(0).shape;
  const bool all = c.opset() < 13 ? !c.HasAttr("axes") : !c.Has(1);
  KnownDims shape;
  if (all) {
    for (const KnownDim& extent : in) {
      if (IsNumber(extent, 1)) continue;
      if (!DimsDiffer(extent, Dim(1))) return;  // may be 1, then it goes
      shape.push_back(extent);
    }
  } else {
    const std::optional<std::vector<int64_t>> given = AxesGiven(c);
    if (!given) {
      const std::optional<int64_t> gone = AxesCount(c);
      if (gone && *gone <= *rank) out.shape = KnownDims(static_cast<size_t>(*rank - *gone));
      return;
    }
    const std::optional<std::vector<int64_t>> axes = c.Axes(*given, *rank);
    if (!axes) return;
    for (int64_t d = 0; d < *rank; ++d) {
      if (std::find(axes->begin(), axes->end(), d) == axes->end()) {
        shape.push_back(in[d]);
      } else if (DimsDiffer(in[d], Dim(1))) {
        return c.Fail(absl::StrCat("squeezes an axis of ", in[d]->Text()));
      }
    }
  }
  out.shape = std::move(shape);
  out.elements = c.In(0).elements;
}

void UnsqueezeRule(InferCall& c) {
  OnnxFact& out = c.Out(0);
  out.type = c.In(0).type;
  const std::optional<int64_t> rank = c.In(0).Rank();
  if (!rank) return;
  const std::optional<std::vector<int64_t>> given = AxesGiven(c);
  if (!given) {
    const std::optional<int64_t> fresh = AxesCount(c);
    if (fresh && *fresh >= 0 && *fresh <= kFewElements)
      out.shape = KnownDims(static_cast<size_t>(*rank + *fresh));
    return;
  }
  const std::optional<std::vector<int64_t>> axes =
      c.Axes(*given, *rank + static_cast<int64_t>(given->size()));
  if (!axes) return;
  KnownDims shape = *c.In(0).shape;
  std::vector<int64_t> sorted = *axes;
  std::sort(sorted.begin(), sorted.end());
  for (const int64_t axis : sorted) shape.insert(shape.begin() + axis, Dim(1));
  out.shape = std::move(shape);
  out.elements = c.In(0).elements;
}

void TransposeRule(InferCall& c) {
  OnnxFact& out = c.Out(0);
  out.type = c.In(0).type;
  std::optional<std::vector<int64_t>> permutation = c.Ints("perm");
  const std::optional<int64_t> rank = c.In(0).Rank();
  if (!rank) {
    if (permutation && !permutation->empty()) out.shape = KnownDims(permutation->size());
    return;
  }
  if (!permutation) {
    permutation.emplace();
    for (int64_t d = *rank; d-- > 0;) permutation->push_back(d);
  }
  if (static_cast<int64_t>(permutation->size()) != *rank)
    return c.Fail(absl::StrCat("perm is no permutation of the axes of ", ShapeOfFact(c.In(0))));
  const std::optional<std::vector<int64_t>> axes = c.Axes(*permutation, *rank);
  if (!axes) return;
  out.shape.emplace();
  for (const int64_t axis : *axes) out.shape->push_back((*c.In(0).shape)[axis]);
  if (*rank < 2) out.elements = c.In(0).elements;
}

void ExpandRule(InferCall& c) {
  OnnxFact& out = c.Out(0);
  out.type = c.In(0).type;
  out.shape = BroadcastKnown(c, c.In(0).shape, AsShape(c, 1));
  const std::optional<int64_t> count = FewElements(out.shape);
  const std::optional<KnownDims>& elements = c.In(0).elements;
  if (!elements || !count || elements->empty()) return;
  if (elements->size() == 1) out.elements = KnownDims(static_cast<size_t>(*count), (*elements)[0]);
  if (static_cast<int64_t>(elements->size()) == *count) out.elements = elements;
}

void TileRule(InferCall& c) {
  OnnxFact& out = c.Out(0);
  out.type = c.In(0).type;
  const std::optional<int64_t> rank = c.In(0).Rank();
  if (c.opset() < 6) {
    if (rank) out.shape = KnownDims(static_cast<size_t>(*rank));
    return;
  }
  const std::optional<KnownDims> repeats = AsShape(c, 1);
  if (!rank || !repeats) {
    if (rank || repeats) out.shape = KnownDims(rank ? static_cast<size_t>(*rank) : repeats->size());
    return;
  }
  if (static_cast<int64_t>(repeats->size()) != *rank) return c.Fail("repeats are not one for each axis");
  out.shape.emplace();
  for (int64_t d = 0; d < *rank; ++d) out.shape->push_back(DimProduct((*c.In(0).shape)[d], (*repeats)[d]));
  const std::optional<int64_t> count = FewElements(out.shape);
  if (!c.In(0).elements || c.In(0).elements->empty() || !count || *rank != 1) return;
  out.elements.emplace();
  for (int64_t k = 0; k < *count; ++k)
    out.elements->push_back((*c.In(0).elements)[static_cast<size_t>(k) % c.In(0).elements->size()]);
}

void ConstantOfShapeRule(InferCall& c) {
  OnnxFact& out = c.Out(0);
  OnnxFact value{ElementType::kFloat, KnownDims{}, std::nullopt};
  const ::onnx::AttributeProto* given = c.Attr("value");
  if (given != nullptr) value = c.FactOf(given->t());
  out.type = value.type;
  out.shape = AsShape(c, 0);
  const std::optional<int64_t> count = FewElements(out.shape);
  if (count && value.elements && value.elements->size() == 1)
    out.elements = KnownDims(static_cast<size_t>(*count), (*value.elements)[0]);
}

void EyeLikeRule(InferCall& c) {
  c.Out(0).type = c.TypeAttr("dtype", c.In(0).type);
  if (c.RankIs(0, 2, "the input")) c.Out(0).shape = c.In(0).shape;
}

void RangeRule(InferCall& c) {
  OnnxFact& out = c.Out(0);
  for (int i = 0; i < 3 && !out.type; ++i) out.type = c.In(i).type;
  out.shape = KnownDims(1);
  KnownDim& count = (*out.shape)[0];
  if (!HasElements(out.type)) {
    const std::optional<std::vector<double>> start = c.Doubles(0), limit = c.Doubles(1), delta = c.Doubles(2);
    if (!start || !limit || !delta || start->size() != 1 || limit->size() != 1 || delta->size() != 1) return;
    const double steps = std::ceil(((*limit)[0] - (*start)[0]) / (*delta)[0]);
    if (steps < 1e15) count = Dim(steps >= 1 ? static_cast<int64_t>(steps) : 0);
    return;
  }
  const KnownDim start = c.Scalar(0), distance = DimDifference(c.Scalar(1), start);
  const std::optional<int64_t> delta = c.ScalarNumber(2);
  if (!distance || !delta || *delta == 0 || *delta == std::numeric_limits<int64_t>::min()) return;
  const KnownDim way = *delta > 0 ? distance : DimDifference(Dim(0), distance);
  if (!way) return;
  if (DimMost(*way).value_or(1) <= 0) {
    count = Dim(0);
  } else if (DimLeast(*way).value_or(-1) >= 0) {
    count = DimCeil(way, *delta > 0 ? *delta : -*delta);
  }
  if (!FewElements(out.shape)) return;
  out.elements.emplace();
  KnownDim element = start;
  for (int64_t k = 0; k < *count->value(); ++k) {
    out.elements->push_back(element);
    element = DimSum(element, Dim(*delta));
  }
}

void ConcatRule(InferCall& c) {
  OnnxFact& out = c.Out(0);
  const OnnxFact* ranked = nullptr;
  for (int i = 0; i < c.inputs(); ++i) {
    if (c.In(i).type && out.type && *c.In(i).type != *out.type) return c.Fail("its inputs differ in type");
    if (!out.type) out.type = c.In(i).type;
    if (ranked == nullptr && c.In(i).shape) ranked = &c.In(i);
  }
  if (ranked == nullptr) return;
  const std::optional<int64_t> axis = c.Axis(c.Int("axis", 1), *ranked->Rank());
  if (!axis) return;
  KnownDims shape = *ranked->shape;
  KnownDim length = Dim(0);
  for (int i = 0; i < c.inputs(); ++i) {
    const OnnxFact& in = c.In(i);
    length = DimSum(length, in.Extent(*axis));
    if (!in.shape) continue;
    if (in.shape->size() != shape.size()) return c.Fail("its inputs differ in rank");
    for (size_t d = 0; d < shape.size(); ++d) {
      if (static_cast<int64_t>(d) != *axis)
        c.Meet(shape[d], (*in.shape)[d], "its inputs differ beside the axis");
    }
  }
  shape[*axis] = length;
  out.shape = std::move(shape);
  if (out.shape->size() != 1 || !HasElements(out.type) || !FewElements(out.shape)) return;
  out.elements.emplace();
  for (int i = 0; i < c.inputs(); ++i) {
    const std::optional<KnownDims> part = c.ElementsOf(i);
    if (!part) return out.elements.reset();
    out.elements->insert(out.elements->end(), part->begin(), part->end());
  }
}

void ConstantRule(InferCall& c) {
  OnnxFact& out = c.Out(0);
  for (const char* name : {"value", "sparse_value", "value_float", "value_floats", "value_int", "value_ints",
                           "value_string", "value_strings"}) {
    const ::onnx::AttributeProto* a = c.Attr(name);
    if (a == nullptr) continue;
    if (a->has_t()) {
      out = c.FactOf(a->t());
      return c.ConstantIs(&a->t());
    }
    if (a->has_sparse_tensor()) {
      out.type = ElementTypeFromCode(a->sparse_tensor().values().data_type());
      out.shape.emplace();
      for (const int64_t extent : a->sparse_tensor().dims()) out.shape->push_back(Dim(extent));
      return;
    }
    const absl::string_view kind = name;
    const bool list = kind.back() == 's';
    const int64_t count = a->floats_size() + a->ints_size() + a->strings_size();
    out.shape = list ? KnownDims{Dim(count)} : KnownDims{};
    out.type = absl::StrContains(kind, "float") ? ElementType::kFloat
               : absl::StrContains(kind, "int") ? ElementType::kInt64
                                                : ElementType::kString;
    if (*out.type != ElementType::kInt64 || count > kFewElements) return;
    out.elements = list ? KnownDims(a->ints().begin(), a->ints().end()) : KnownDims{Dim(a->i())};
    return;
  }
}

void DepthToSpaceRule(InferCall& c) {
  c.Out(0).type = c.In(0).type;
  const int64_t block = c.Int("blocksize", 0);
  if (!c.RankIs(0, 4, "the input") || block <= 0 || block > (1 << 20)) return;
  const KnownDims& x = *c.In(0).shape;
  c.Out(0).shape = KnownDims{x[0], DimQuotient(x[1], Dim(block * block)), DimProduct(x[2], Dim(block)),
                             DimProduct(x[3], Dim(block))};
}

void SpaceToDepthRule(InferCall& c) {
  c.Out(0).type = c.In(0).type;
  const int64_t block = c.Int("blocksize", 0);
  if (!c.RankIs(0, 4, "the input") || block <= 0 || block > (1 << 20)) return;
  const KnownDims& x = *c.In(0).shape;
  c.Out(0).shape = KnownDims{x[0], DimProduct(x[1], Dim(block * block)), DimQuotient(x[2], Dim(block)),
                             DimQuotient(x[3], Dim(block))};
}

constexpr InferRow kRows[] = {
    {"Shape", ShapeRule},
    {"Size", SizeRule},
    {"Reshape", ReshapeRule},
    {"Flatten", FlattenRule},
    {"Squeeze", SqueezeRule},
    {"Unsqueeze", UnsqueezeRule},
    {"Transpose", TransposeRule},
    {"Expand", ExpandRule},
    {"Tile", TileRule},
    {"ConstantOfShape", ConstantOfShapeRule},
    {"EyeLike", EyeLikeRule},
    {"Range", RangeRule},
    {"Concat", ConcatRule},
    {"Constant", ConstantRule},
    {"DepthToSpace", DepthToSpaceRule},
    {"SpaceToDepth", SpaceToDepthRule},
};

}  // namespace

absl::Span<const InferRow> ShapeRules() { return kRows; }

}  // namespace twinforge
