#include "reference/expression.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "reference/python.h"

namespace twinforge {
namespace {

// `name` as a literal, a number between dots that is the layer's as {i}; of a run of tensors, with {e} at the
// end of `name` and `tail` behind.
std::string NameText(absl::string_view name, int64_t layer, absl::string_view tail = "", bool run = false) {
  std::vector<std::string> parts;
  bool placed = false;
  const std::string number = absl::StrCat(layer);
  for (absl::string_view part : absl::StrSplit(name, '.')) {
    const bool here = !placed && layer >= 0 && part == number;
    placed = placed || here;
    parts.push_back(here ? "{i}" : PyInFString(part));
  }
  if (!placed && !run) return PyString(name);
  return absl::StrCat("f\"", absl::StrJoin(parts, "."), run ? "{e}" : "", PyInFString(tail), "\"");
}

// Places of an axis as what stands in brackets, or "" where no slice says them.
std::string SliceText(const IndexMap& map) {
  if (map.runs().size() != 1) return "";
  const Run& run = map.runs()[0];
  if (run.is_fill() || run.step < 1) return "";
  const int64_t end = run.start + run.step * (run.count - 1) + 1;
  return absl::StrCat(run.start, ":", end, run.step == 1 ? "" : absl::StrCat(":", run.step));
}

bool AreEvenBlocks(const std::vector<Run>& runs) {
  for (const Run& run : runs) {
    if (run.step != 1 || run.count != runs[0].count) return false;
  }
  for (size_t i = 2; i < runs.size(); ++i) {
    if (runs[i].start - runs[i - 1].start != runs[1].start - runs[0].start) return false;
  }
  return runs.size() > 2 && runs[1].start > runs[0].start;
}

// What a library of arrays calls the things that both have.
struct Words {
  bool torch = false;
  absl::string_view stack, full, concatenate, permute, axis;
};
constexpr Words kNumpy = {false, "np.stack", "np.full", "np.concatenate", ".transpose(", "axis"};
constexpr Words kTorch = {true, "torch.stack", "torch.full", "torch.cat", ".permute(", "dim"};

std::string RangeText(const Run& run) {
  const int64_t end = run.start + run.step * run.count;
  return absl::StrCat("range(", run.start, ", ", end, run.step == 1 ? "" : absl::StrCat(", ", run.step), ")");
}

// Places of an axis as ranges, arguments of a call.
std::string RangesText(const IndexMap& map) {
  const std::vector<Run>& runs = map.runs();
  if (AreEvenBlocks(runs)) {
    const int64_t stride = runs[1].start - runs[0].start;
    return absl::StrCat("*(range(j, j + ", runs[0].count, ") for j in range(", runs[0].start, ", ",
                        runs.back().start + 1, ", ", stride, "))");
  }
  return absl::StrJoin(runs, ", ", [](std::string* out, const Run& run) { out->append(RangeText(run)); });
}

// Places of an axis as an array of indices.
std::string IndexText(const IndexMap& map) {
  const std::vector<Run>& runs = map.runs();
  if (AreEvenBlocks(runs)) {
    const int64_t stride = runs[1].start - runs[0].start;
    return absl::StrCat("np.add.outer(np.arange(", runs[0].start, ", ", runs.back().start + 1, ", ", stride,
                        "), np.arange(", runs[0].count, ")).ravel()");
  }
  std::vector<std::string> parts;
  for (const Run& run : runs) {
    const int64_t end = run.start + run.step * run.count;
    const std::string stop = absl::StrCat(end);
    if (run.count == 1) {
      parts.push_back(absl::StrCat(run.start));
    } else if (run.step > 0) {
      parts.push_back(absl::StrCat(run.start, ":", end, run.step == 1 ? "" : absl::StrCat(":", run.step)));
    } else {
      parts.push_back(absl::StrCat("np.arange(", run.start, ", ", stop, ", ", run.step, ")"));
    }
  }
  return absl::StrCat("np.r_[", absl::StrJoin(parts, ", "), "]");
}

class Printer {
 public:
  Printer(int64_t layer, const Words& words) : layer_(layer), words_(words) {}

  absl::StatusOr<std::string> Print(const WeightPtr& w) const {
    switch (w->kind()) {
      case WeightKind::kSource:
        return absl::StrCat("read(", NameText(w->source_name(), layer_), ")");
      case WeightKind::kStack:
        return StackText(*w);
      case WeightKind::kFill:
        return absl::StrCat(words_.full, "(", PyTuple(w->shape()), ", ", PyFloat(w->fill()), ")");
      case WeightKind::kTake:
        return TakeText(*w);
      case WeightKind::kTranspose: {
        TWIN_ASSIGN_OR_RETURN(const std::string x, Print(w->child()));
        return absl::StrCat(x, words_.permute, absl::StrJoin(w->perm(), ", "), ")");
      }
      case WeightKind::kReshape:
        return ReshapeText(*w);
      case WeightKind::kConcat: {
        std::vector<std::string> parts;
        for (const WeightPtr& child : w->children()) {
          TWIN_ASSIGN_OR_RETURN(parts.emplace_back(), Print(child));
        }
        return absl::StrCat(words_.concatenate, "([", absl::StrJoin(parts, ", "), "], ", words_.axis, "=",
                            w->axis(), ")");
      }
      case WeightKind::kCast:
      case WeightKind::kMap:
      case WeightKind::kContract:
      case WeightKind::kStat:
      case WeightKind::kGroup:
        break;
    }
    return absl::UnimplementedError("a weight is computed where it is read");
  }

 private:
  std::string StackText(const Weight& w) const {
    const absl::string_view name = w.stack_name();
    const int64_t first = w.stack_first(), count = w.shape()[0];
    const std::string range = first == 0 ? absl::StrCat(count) : absl::StrCat(first, ", ", first + count);
    return absl::StrCat(words_.stack, "([read(",
                        NameText(name.substr(0, w.stack_at()), layer_, name.substr(w.stack_at()), true),
                        ") for e in range(", range, ")])");
  }

  absl::StatusOr<std::string> TakeText(const Weight& w) const {
    if (w.map().has_fill()) return absl::UnimplementedError("a weight is padded where it is read");
    TWIN_ASSIGN_OR_RETURN(const std::string x, Print(w.child()));
    const std::string slice = SliceText(w.map());
    if (slice.empty()) {
      return words_.torch ? absl::StrCat("take(", x, ", ", w.axis(), ", ", RangesText(w.map()), ")")
                          : absl::StrCat("np.take(", x, ", ", IndexText(w.map()), ", axis=", w.axis(), ")");
    }
    std::string before;
    for (int64_t i = 0; i < w.axis(); ++i) before += ":, ";
    return absl::StrCat(x, "[", before, slice, "]");
  }

  // One layer of a stack, [1, ...] under a reshape: read(stack)[i] says it without the axis.
  absl::StatusOr<std::string> ReshapeText(const Weight& w) const {
    const Weight& x = *w.child();
    const bool one = x.kind() == WeightKind::kTake && x.axis() == 0 && x.map().size() == 1 &&
                     !x.map().has_fill() && x.rank() > 1;
    if (!one) {
      TWIN_ASSIGN_OR_RETURN(const std::string text, Print(w.child()));
      return absl::StrCat(text, ".reshape(", absl::StrJoin(w.shape(), ", "), ")");
    }
    TWIN_ASSIGN_OR_RETURN(const std::string text, Print(x.child()));
    const Shape rest(x.shape().begin() + 1, x.shape().end());
    const std::string indexed = absl::StrCat(text, "[", PlaceText(x.map().At(0)), "]");
    if (rest == w.shape()) return indexed;
    return absl::StrCat(indexed, ".reshape(", absl::StrJoin(w.shape(), ", "), ")");
  }

  std::string PlaceText(int64_t at) const {
    if (layer_ < 0) return absl::StrCat(at);
    if (at == layer_) return "i";
    return at < layer_ ? absl::StrCat("i - ", layer_ - at) : absl::StrCat("i + ", at - layer_);
  }

  int64_t layer_;
  const Words& words_;
};

}  // namespace

absl::StatusOr<std::string> NumpyExpression(const WeightPtr& w, int64_t layer) {
  return Printer(layer, kNumpy).Print(w);
}

absl::StatusOr<std::string> TorchExpression(const WeightPtr& w, int64_t layer) {
  return Printer(layer, kTorch).Print(w);
}

}  // namespace twinforge
