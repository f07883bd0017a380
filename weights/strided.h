// Copies and fills boxes whose elements lie at any distance from one another.
//
// A reader writes straight to where its elements belong, so all that moving verbs come
// to is one copy between two *strided* boxes: per axis an extent and, on either side,
// how many elements lie between neighbours. A transpose is such a copy (strides
// exchanged), so is a padded row (row distance longer than the row) and a reversed axis
// (a negative stride).
//
// Axes are ordered and merged first, so that equal rows become one long run; where the
// two sides disagree about their fastest axis, the copy goes tile by tile to keep both
// in cache. Distinct destination elements must not overlap; every index is int64.
#ifndef TWINFORGE_WEIGHTS_STRIDED_H_
#define TWINFORGE_WEIGHTS_STRIDED_H_

#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"

namespace twinforge {

// Small vectors of axes; ranks above six go to the heap.
using Ints = absl::InlinedVector<int64_t, 6>;

struct StridedAxis {
  int64_t size;
  int64_t from;  // elements between neighbours in the source
  int64_t to;    // and in the destination
};
using StridedAxes = absl::InlinedVector<StridedAxis, 6>;

// The axes of a box without those of extent 1, neighbours merged where both sides
// continue one another; order kept, outermost first. Empty means one element.
StridedAxes Coalesce(absl::Span<const int64_t> size, absl::Span<const int64_t> from,
                     absl::Span<const int64_t> to);

// The same, ordered so that the destination's fastest axis is last.
StridedAxes CoalesceByDestination(absl::Span<const int64_t> size, absl::Span<const int64_t> from,
                                  absl::Span<const int64_t> to);

// Row-major strides of a dense box.
Ints DenseStrides(absl::Span<const int64_t> size);

// Calls fn(from offset, to offset) for every index of `axes`, last axis fastest.
template <typename Fn>
void ForEachOffset(absl::Span<const StridedAxis> axes, Fn fn) {
  Ints index(axes.size(), 0);
  int64_t from = 0;
  int64_t to = 0;
  while (true) {
    fn(from, to);
    int64_t i = static_cast<int64_t>(axes.size()) - 1;
    for (; i >= 0; --i) {
      from += axes[i].from;
      to += axes[i].to;
      if (++index[i] < axes[i].size) break;
      index[i] = 0;
      from -= axes[i].from * axes[i].size;
      to -= axes[i].to * axes[i].size;
    }
    if (i < 0) return;
  }
}

// REQUIRES: element_bytes is 1, 2, 4 or 8; both sides aligned to it.
void CopyStrided(absl::Span<const int64_t> size, const std::byte* from,
                 absl::Span<const int64_t> from_strides, std::byte* to, absl::Span<const int64_t> to_strides,
                 int64_t element_bytes);

void FillStrided(absl::Span<const int64_t> size, const std::byte* element, std::byte* to,
                 absl::Span<const int64_t> to_strides, int64_t element_bytes);

}  // namespace twinforge

#endif  // TWINFORGE_WEIGHTS_STRIDED_H_
