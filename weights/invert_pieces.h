// Pieces of a source on their way home, and how they are put together again: private to invert.cc.
#ifndef TWINFORGE_WEIGHTS_INVERT_PIECES_H_
#define TWINFORGE_WEIGHTS_INVERT_PIECES_H_

#include <utility>
#include <vector>

#include "weights/invert.h"

namespace twinforge::inverting {

// What is known of the axes of a node: per axis the indices, ascending. An empty set
// stands for the whole axis, which it nearly always is; a path that knows nothing ends.
using Known = std::vector<IndexMap>;

struct Path {
  WeightPtr back;  // program over the twin; its extents are the sizes of `known`; null where none is wanted
  Known known;
  Fate fate = Fate::kMoved;
};

inline bool IsWhole(const IndexMap& set) { return set.size() == 0; }

// `set` in the form that Known keeps it.
inline IndexMap Kept(IndexMap set, int64_t extent) {
  return set.IsIdentity(extent) ? IndexMap() : std::move(set);
}
inline IndexMap Spelled(const IndexMap& set, int64_t extent) {
  return IsWhole(set) ? IndexMap::Identity(extent) : set;
}

struct Assembly {
  WeightPtr program;    // null where something is missing, or none is wanted
  int64_t missing = 0;  // elements of the region that no piece holds
};

// Positions of an axis; of no way back it makes none.
WeightPtr Select(const WeightPtr& x, int64_t axis, const IndexMap& positions);

// `region` of a source of `shape`, put together axis by axis, by classes of indices that the same pieces
// hold.
using Pieces = std::vector<const Path*>;
Assembly Assemble(const Shape& shape, const Known& region, const Pieces& pieces);

}  // namespace twinforge::inverting

#endif  // TWINFORGE_WEIGHTS_INVERT_PIECES_H_
