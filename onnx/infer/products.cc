// Products of matrices, in all their notations.
#include <algorithm>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "onnx/infer/rule.h"

namespace twinforge {
namespace {

// [.., m, k] times [.., k, n]; one axis alone is a row of the first, a column of the second.
std::optional<KnownDims> MatmulShape(InferCall& c, std::optional<KnownDims> a, std::optional<KnownDims> b) {
  if (!a || !b) return std::nullopt;
  if (a->empty() || b->empty()) {
    c.Fail("takes no scalars");
    return std::nullopt;
  }
  const bool row = a->size() == 1, column = b->size() == 1;
  if (row) a->insert(a->begin(), Dim(1));
  if (column) b->push_back(Dim(1));
  KnownDim inner = a->back();
  c.Meet(inner, (*b)[b->size() - 2], "its inner axes differ");
  std::optional<KnownDims> shape =
      BroadcastKnown(c, KnownDims(a->begin(), a->end() - 2), KnownDims(b->begin(), b->end() - 2));
  if (!row) shape->push_back((*a)[a->size() - 2]);
  if (!column) shape->push_back(b->back());
  return shape;
}

void MatMulRule(InferCall& c) {
  c.Out(0).type = c.In(0).type ? c.In(0).type : c.In(1).type;
  c.Out(0).shape = MatmulShape(c, c.In(0).shape, c.In(1).shape);
}
void MatMulIntegerRule(InferCall& c) {
  c.Out(0).type = ElementType::kInt32;
  c.Out(0).shape = MatmulShape(c, c.In(0).shape, c.In(1).shape);
}
void QLinearMatMulRule(InferCall& c) {
  c.Out(0).type = c.In(7).type;
  c.Out(0).shape = MatmulShape(c, c.In(0).shape, c.In(3).shape);
}

void FusedMatMulRule(InferCall& c) {
  c.Out(0).type = c.In(0).type;
  if (c.Int("transBatchA", 0) != 0 || c.Int("transBatchB", 0) != 0) return;
  std::optional<KnownDims> a = c.In(0).shape, b = c.In(1).shape;
  for (const auto& [shape, name] : {std::pair(&a, "transA"), std::pair(&b, "transB")}) {
    if (*shape && (*shape)->size() >= 2 && c.Int(name, 0) != 0)
      std::swap((*shape)->back(), (**shape)[(*shape)->size() - 2]);
  }
  c.Out(0).shape = MatmulShape(c, a, b);
}

void GemmRule(InferCall& c) {
  c.Out(0).type = c.In(0).type ? c.In(0).type : c.In(1).type;
  c.Out(0).shape = KnownDims(2);
  const int64_t rows = c.Int("transA", 0) != 0 ? 1 : 0, columns = c.Int("transB", 0) != 0 ? 0 : 1;
  if (c.RankIs(0, 2, "A")) (*c.Out(0).shape)[0] = c.In(0).Extent(rows);
  if (c.RankIs(1, 2, "B")) (*c.Out(0).shape)[1] = c.In(1).Extent(columns);
  KnownDim inner = c.In(0).Extent(1 - rows);
  c.Meet(inner, c.In(1).Extent(1 - columns), "its inner axes differ");
}

void MatMulNBitsRule(InferCall& c) {
  c.Out(0).type = c.In(0).type;
  const int64_t k = c.Int("K", 0), n = c.Int("N", 0);
  if (!c.In(0).shape || c.In(0).shape->empty() || k <= 0 || n <= 0) return;
  KnownDim inner = c.In(0).shape->back();
  c.Meet(inner, Dim(k), "its last axis and K differ");
  if (*c.In(0).Rank() == 1) {
    c.Out(0).shape = KnownDims{Dim(n)};
    return;
  }
  c.Out(0).shape = c.In(0).shape;
  c.Out(0).shape->back() = Dim(n);
}

void SameRule(InferCall& c) { c.Like(0, 0); }

void DetRule(InferCall& c) {
  c.Out(0).type = c.In(0).type;
  if (c.In(0).shape && c.In(0).shape->size() >= 2)
    c.Out(0).shape = KnownDims(c.In(0).shape->begin(), c.In(0).shape->end() - 2);
}

// ---- Einsum

using Labels = std::vector<std::string>;

// Labels of a term of an input with `hidden` axes behind its "...", of at most `all`.
Labels LabelsIn(absl::string_view term, int64_t hidden, int64_t all) {
  Labels labels;
  for (size_t i = 0; i < term.size(); ++i) {
    if (term.substr(i, 3) != "...") {
      labels.emplace_back(1, term[i]);
      continue;
    }
    for (int64_t d = all - hidden; d < all; ++d) labels.push_back(absl::StrCat(".", d));
    i += 2;
  }
  return labels;
}

void EinsumRule(InferCall& c) {
  c.Out(0).type = c.In(0).type;
  const std::string text = absl::StrReplaceAll(c.Str("equation", ""), {{" ", ""}});
  const std::vector<std::string> sides = absl::StrSplit(text, "->"), terms = absl::StrSplit(sides[0], ',');
  if (static_cast<int>(terms.size()) != c.inputs() || sides.size() > 2)
    return c.Fail("its equation does not fit the inputs");
  std::vector<int64_t> hidden;
  int64_t widest = 0;
  for (int t = 0; t < c.inputs(); ++t) {
    if (!c.In(t).shape) return;
    const bool dots = absl::StrContains(terms[t], "...");
    hidden.push_back(dots ? *c.In(t).Rank() - static_cast<int64_t>(terms[t].size()) + 3 : 0);
    if (hidden.back() < 0) return c.Fail("a term has more labels than its input axes");
    widest = std::max(widest, hidden.back());
  }
  std::map<std::string, KnownDim> size;
  std::map<std::string, int> times;
  for (int t = 0; t < c.inputs(); ++t) {
    const Labels labels = LabelsIn(terms[t], hidden[t], widest);
    if (static_cast<int64_t>(labels.size()) != *c.In(t).Rank())
      return c.Fail("a term does not fit its input");
    for (size_t d = 0; d < labels.size(); ++d) {
      const KnownDim& extent = (*c.In(t).shape)[d];
      const auto [at, fresh] = size.emplace(labels[d], extent);
      if (!fresh && !Broadcasts(at->second, extent)) return c.Fail("a label has two extents");
      if (!fresh) at->second = DimBroadcast(at->second, extent);
      ++times[labels[d]];
    }
  }
  Labels result;
  if (sides.size() == 2) {
    result = LabelsIn(sides[1], widest, widest);
  } else {  // all that occur once, in order, behind the axes of "..."
    for (int64_t d = 0; d < widest; ++d) result.push_back(absl::StrCat(".", d));
    for (const auto& [label, count] : times) {
      if (count == 1 && label[0] != '.') result.push_back(label);
    }
  }
  KnownDims shape;
  for (const std::string& label : result) {
    const auto found = size.find(label);
    if (found == size.end()) return c.Fail("the result has a label of no input");
    shape.push_back(found->second);
  }
  c.Out(0).shape = std::move(shape);
}

constexpr char kMs[] = "com.microsoft";
constexpr InferRow kRows[] = {
    {"MatMul", MatMulRule},
    {"MatMulInteger", MatMulIntegerRule},
    {"QLinearMatMul", QLinearMatMulRule},
    {"FusedMatMul", FusedMatMulRule, kMs, 2},
    {"Gemm", GemmRule},
    {"MatMulNBits", MatMulNBitsRule, kMs, 3},
    {"MoE", SameRule, kMs, 3},
    {"QMoE", SameRule, kMs, 4},
    {"Det", DetRule},
    {"Einsum", EinsumRule},
};

}  // namespace

absl::Span<const InferRow> ProductRules() { return kRows; }

}  // namespace twinforge
