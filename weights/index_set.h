// Sets of indices along axes, as ascending index maps: what inversion counts with.
//
// Here an IndexMap is read as a set: its places in ascending order, none twice, none fill.
// Most sets are a whole axis or a few runs, and stay runs; only stepped ones (rotary
// layouts) are spelled out index by index.
#ifndef TWINFORGE_WEIGHTS_INDEX_SET_H_
#define TWINFORGE_WEIGHTS_INDEX_SET_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "weights/index_map.h"
#include "weights/shape.h"

namespace twinforge {

// The source indices that a map reaches, ascending, and for each a place that holds it.
struct Reached {
  IndexMap indices;
  IndexMap positions;
};
// REQUIRES: `map` names no index at or beyond `extent`.
Reached ReachedThrough(const IndexMap& map, int64_t extent);

// Elements of a set below `bound`.
int64_t CountBelow(const IndexMap& set, int64_t bound);

// Every index moved by `by`. REQUIRES: none becomes negative.
IndexMap Moved(const IndexMap& set, int64_t by);

bool IsSubset(const IndexMap& part, const IndexMap& set);

// For each index of `wanted`, where it stands in `list` (any map without fill whose
// indices are distinct). REQUIRES: all of them do.
IndexMap PositionsIn(const IndexMap& list, const IndexMap& wanted);

// A map that lists `indices` in this order.
IndexMap MapOf(absl::Span<const int64_t> indices);

// ---- reshapes

// Axes of two shapes of equal element count, cut where their products meet:
//   [4, 16, 64] and [64, 8, 8]  ->  {[4, 16], [64]}, {[64], [8, 8]}
struct ShapeGroup {
  Shape outer;
  Shape inner;
};
// REQUIRES: no extent is 0.
std::vector<ShapeGroup> ShapeGroups(absl::Span<const int64_t> outer, absl::Span<const int64_t> inner);

// A product of sets over the axes of `extents`, as one set over their flattened axis.
IndexMap FlattenSets(absl::Span<const IndexMap> sets, absl::Span<const int64_t> extents);

// A part of a flat set that is a product over several axes, and where its elements
// (row-major) stand in the flat set.
struct ProductSet {
  std::vector<IndexMap> axes;
  IndexMap positions;
};
// A flat set as products that share no element: one where it is a product, else as few
// as grouping equal rows gives.
std::vector<ProductSet> SplitSet(const IndexMap& flat, absl::Span<const int64_t> extents);

// ---- assembling

// Indices of `region` that are in exactly the same ones of `sets`.
struct IndexClass {
  IndexMap indices;              // ascending
  std::vector<int64_t> members;  // which sets hold them, ascending
};
// All classes, by their first index.
std::vector<IndexClass> ClassesOf(const IndexMap& region, absl::Span<const IndexMap> sets);

}  // namespace twinforge

#endif  // TWINFORGE_WEIGHTS_INDEX_SET_H_
