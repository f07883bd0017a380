// Shapes, boxes and the arithmetic of row-major order, all in int64.
#ifndef TWINFORGE_WEIGHTS_SHAPE_H_
#define TWINFORGE_WEIGHTS_SHAPE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace twinforge {

// Extents from the outermost axis to the innermost. Rank 0 is one element.
using Shape = std::vector<int64_t>;

// A part of a tensor: per axis where it starts and how far it reaches.
// {start: {2, 0}, size: {3, 8}} is rows 2, 3 and 4 of a matrix with 8 columns.
struct Box {
  std::vector<int64_t> start;
  std::vector<int64_t> size;
};

// Product of extents; nullopt on overflow or a negative extent.
std::optional<int64_t> CheckedElementCount(absl::Span<const int64_t> shape);
// REQUIRES: the product does not overflow.
int64_t ElementCount(absl::Span<const int64_t> shape);

Box WholeBox(absl::Span<const int64_t> shape);

// Row-major strides in elements.
std::vector<int64_t> Strides(absl::Span<const int64_t> shape);

std::string ShapeText(absl::Span<const int64_t> shape);  // "[64, 4, 16]"

}  // namespace twinforge

#endif  // TWINFORGE_WEIGHTS_SHAPE_H_
