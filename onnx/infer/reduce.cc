// Axes folded away, and normalisation with its statistics.
#include <algorithm>

#include "onnx/infer/rule.h"

namespace twinforge {
namespace {

// Sets the shape of output 0 to the input's without `axes`, or with 1 in their places.
void FoldAxes(InferCall& c, const std::vector<int64_t>& axes, bool keep) {
  OnnxFact& out = c.Out(0);
  out.shape.emplace();
  const KnownDims& in = *c.In(0).shape;
  for (size_t d = 0; d < in.size(); ++d) {
    const bool folded = std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) != axes.end();
    if (!folded) out.shape->push_back(in[d]);
    if (folded && keep) out.shape->push_back(Dim(1));
  }
}

using Fold = KnownDim (*)(const KnownDim& a, const KnownDim& b);
KnownDim NoFold(const KnownDim&, const KnownDim&) { return std::nullopt; }

// A vector of sizes folded to one number, as exporters do for a product of extents.
void FoldElements(InferCall& c, bool all, Fold fold) {
  OnnxFact& out = c.Out(0);
  const std::optional<KnownDims>& in = c.In(0).elements;
  if (fold == NoFold || !in || in->empty() || !FewElements(out.shape)) return;
  if (!all && in->size() != 1) return;
  KnownDim folded = (*in)[0];
  for (size_t k = 1; k < in->size(); ++k) folded = fold(folded, (*in)[k]);
  out.elements = KnownDims{folded};
}

template <Fold fold>
void ReduceRule(InferCall& c) {
  OnnxFact& out = c.Out(0);
  out.type = c.In(0).type;
  const bool keep = c.Int("keepdims", 1) != 0;
  const std::optional<int64_t> rank = c.In(0).Rank();
  // Axes are an input of ReduceSum since operator set 13, of the others since 18; an attribute before.
  const bool as_input = c.opset() >= (c.op() == "ReduceSum" ? 13 : 18);
  const std::optional<std::vector<int64_t>> given = !as_input  ? c.Ints("axes")
                                                    : c.Has(1) ? c.In(1).Integers()
                                                               : std::vector<int64_t>();
  if (as_input && !given) {  // some axes
    const std::optional<int64_t> count = c.In(1).Number(0);
    if (rank && keep) out.shape = KnownDims(static_cast<size_t>(*rank));
    if (rank && !keep && count && *count > 0 && *count <= *rank)
      out.shape = KnownDims(static_cast<size_t>(*rank - *count));
    return;
  }
  const bool none = !given || given->empty();
  if (!rank) {
    if (none && !keep && c.Int("noop_with_empty_axes", 0) == 0) out.shape = KnownDims();
    return;
  }
  if (none && c.Int("noop_with_empty_axes", 0) != 0) {
    out.shape = c.In(0).shape;
    return;
  }
  std::vector<int64_t> axes;
  if (none) {
    for (int64_t d = 0; d < *rank; ++d) axes.push_back(d);
  } else {
    // An axis may be named twice here.
    for (const int64_t axis : *given) {
      const std::optional<int64_t> normal = c.Axis(axis, *rank);
      if (!normal) return;
      axes.push_back(*normal);
    }
  }
  FoldAxes(c, axes, keep);
  FoldElements(c, *rank <= 1, fold);
}

void ArgRule(InferCall& c) {
  OnnxFact& out = c.Out(0);
  out.type = ElementType::kInt64;
  const std::optional<int64_t> rank = c.In(0).Rank();
  if (!rank) return;
  const std::optional<int64_t> axis = c.Axis(c.Int("axis", 0), *rank);
  if (axis) FoldAxes(c, {*axis}, c.Int("keepdims", 1) != 0);
}

// ---- normalisation

// The input's shape with 1 from `axis` on.
std::optional<KnownDims> StatisticsShape(InferCall& c, int64_t axis) {
  const std::optional<int64_t> rank = c.In(0).Rank();
  if (!rank) return std::nullopt;
  const std::optional<int64_t> from = c.Axis(axis, *rank);
  if (!from) return std::nullopt;
  KnownDims shape = *c.In(0).shape;
  std::fill(shape.begin() + *from, shape.end(), KnownDim(Dim(1)));
  return shape;
}

void LayerNormalizationRule(InferCall& c) {
  c.Like(0, 0);
  c.Out(1).type = c.Out(2).type = c.TypeAttr("stash_type", ElementType::kFloat);
  c.Out(1).shape = c.Out(2).shape = StatisticsShape(c, c.Int("axis", -1));
}

void SimplifiedNormalizationRule(InferCall& c) {
  c.Like(0, 0);
  c.Out(1).type = ElementType::kFloat;
  c.Out(1).shape = StatisticsShape(c, c.Int("axis", -1));
}

void BatchNormalizationRule(InferCall& c) {
  c.Like(0, 0);
  c.Like(1, 3);
  c.Like(2, 4);
  c.Like(3, 3);
  c.Like(4, 4);
}

// input + skip, normalised; the sum is the fourth output.
void SkipRule(InferCall& c) {
  c.Like(0, 0);
  c.Like(3, 0);
  c.Out(1).type = c.Out(2).type = ElementType::kFloat;
  c.Out(1).shape = c.Out(2).shape = StatisticsShape(c, -1);
}

void EmbedLayerNormalizationRule(InferCall& c) {
  c.Out(0).type = c.Out(2).type = c.In(2).type;
  c.Out(1).type = ElementType::kInt32;
  if (!c.RankIs(0, 2, "ids")) return;
  c.Out(0).shape = c.Out(2).shape = KnownDims{c.In(0).Extent(0), c.In(0).Extent(1), c.In(2).Extent(1)};
  c.Out(1).shape = KnownDims{c.In(0).Extent(0)};
}

// ---- losses and optimisers

void LossRule(InferCall& c) {
  c.Out(0).type = c.In(0).type;
  c.Out(0).shape = c.Str("reduction", "mean") == "none" ? c.In(1).shape : KnownDims();
  c.Like(1, 0);
}

// r, t, then n tensors, n gradients, and n of each state; new tensors and states.
void OptimiserRule(InferCall& c) {
  const int kinds = c.op() == "Adam" ? 4 : 3, n = (c.inputs() - 2) / kinds;
  for (int i = 0; i < n; ++i) {
    for (int kind = 0; kind + 1 < kinds; ++kind) c.Like(i + kind * n, 2 + i + (kind == 0 ? 0 : kind + 1) * n);
  }
}

constexpr char kMs[] = "com.microsoft", kTraining[] = "ai.onnx.preview.training";
constexpr InferRow kRows[] = {
    {"ReduceSum", ReduceRule<DimSum>},
    {"ReduceProd", ReduceRule<DimProduct>},
    {"ReduceMax", ReduceRule<DimMax>},
    {"ReduceMin", ReduceRule<DimMin>},
    {"ReduceMean", ReduceRule<NoFold>},
    {"ReduceL1", ReduceRule<NoFold>},
    {"ReduceL2", ReduceRule<NoFold>},
    {"ReduceSumSquare", ReduceRule<NoFold>},
    {"ReduceLogSum", ReduceRule<NoFold>},
    {"ReduceLogSumExp", ReduceRule<NoFold>},
    {"ArgMax", ArgRule},
    {"ArgMin", ArgRule},
    {"LayerNormalization", LayerNormalizationRule},
    {"RMSNormalization", LayerNormalizationRule},
    {"BatchNormalization", BatchNormalizationRule},
    {"SimplifiedLayerNormalization", SimplifiedNormalizationRule, "", 2},
    {"SimplifiedLayerNormalization", SimplifiedNormalizationRule, kMs, 2},
    {"SkipLayerNormalization", SkipRule, kMs, 3},
    {"SkipSimplifiedLayerNormalization", SkipRule, kMs, 3},
    {"EmbedLayerNormalization", EmbedLayerNormalizationRule, kMs, 3},
    {"NegativeLogLikelihoodLoss", LossRule},
    {"SoftmaxCrossEntropyLoss", LossRule},
    {"Adagrad", OptimiserRule, kTraining},
    {"Adam", OptimiserRule, kTraining},
    {"Momentum", OptimiserRule, kTraining},
};

}  // namespace

absl::Span<const InferRow> ReduceRules() { return kRows; }

}  // namespace twinforge
