#include "onnx/facts.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace twinforge {
namespace {

std::optional<std::vector<int64_t>> AllNumbers(const std::optional<std::vector<KnownDim>>& dims) {
  if (!dims) return std::nullopt;
  std::vector<int64_t> numbers;
  numbers.reserve(dims->size());
  for (const KnownDim& dim : *dims) {
    const std::optional<int64_t> number = dim ? dim->value() : std::nullopt;
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

}  // namespace

std::optional<int64_t> OnnxFact::Rank() const {
  if (!shape) return std::nullopt;
  return static_cast<int64_t>(shape->size());
}

KnownDim OnnxFact::Extent(int64_t axis) const {
  if (!shape) return std::nullopt;
  const auto rank = static_cast<int64_t>(shape->size());
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank) return std::nullopt;
  return (*shape)[axis];
}

std::optional<int64_t> OnnxFact::Number(int64_t axis) const {
  const KnownDim extent = Extent(axis);
  return extent ? extent->value() : std::nullopt;
}

std::optional<std::vector<int64_t>> OnnxFact::Integers() const { return AllNumbers(elements); }
std::optional<std::vector<int64_t>> OnnxFact::NumberShape() const { return AllNumbers(shape); }

bool OnnxFact::FullShape() const {
  if (!shape) return false;
  for (const KnownDim& extent : *shape) {
    if (!extent) return false;
  }
  return true;
}

std::string FactText(const OnnxFact& fact) {
  const std::string type = fact.type ? std::string(ElementTypeName(*fact.type)) : "?";
  if (!fact.shape) return absl::StrCat(type, " [...]");
  return absl::StrCat(type, " [",
                      absl::StrJoin(*fact.shape, ", ",
                                    [](std::string* out, const KnownDim& extent) {
                                      absl::StrAppend(out, extent ? extent->Text() : "?");
                                    }),
                      "]");
}

const OnnxFact& OnnxFacts::Of(const OnnxGraph& graph, int32_t slot) const {
  static const OnnxFact* const nothing = new OnnxFact;
  const auto found = facts_.find(&graph);
  if (found == facts_.end() || slot < 0 || slot >= static_cast<int32_t>(found->second.size()))
    return *nothing;
  return found->second[slot];
}

}  // namespace twinforge
