#include "weights/shape.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"

namespace twinforge {

std::optional<int64_t> CheckedElementCount(absl::Span<const int64_t> shape) {
  int64_t count = 1;
  bool empty = false;
  for (int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    if (extent == 0) {
      empty = true;
      continue;
    }
    // Overflow is judged without the zero extents, so that the answer does not depend
    // on the order of axes.
    if (__builtin_mul_overflow(count, extent, &count)) return std::nullopt;
  }
  return empty ? 0 : count;
}

int64_t ElementCount(absl::Span<const int64_t> shape) {
  const std::optional<int64_t> count = CheckedElementCount(shape);
  TWIN_CHECK(count.has_value(), absl::StrCat("shape ", ShapeText(shape), " has no element count"));
  return *count;
}

Box WholeBox(absl::Span<const int64_t> shape) {
  return {.start = std::vector<int64_t>(shape.size(), 0), .size = Shape(shape.begin(), shape.end())};
}

std::vector<int64_t> Strides(absl::Span<const int64_t> shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (int64_t i = static_cast<int64_t>(shape.size()) - 2; i >= 0; --i) {
    strides[i] = strides[i + 1] * shape[i + 1];
  }
  return strides;
}

std::string ShapeText(absl::Span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

}  // namespace twinforge
