// How a tensor is cut so that each piece fits the memory that a worker has.
//
//   tensor [6, 4096, 4096], 3 rows of axis 1 at a time:
//   tile 0 = [0:1, 0:3, :], tile 1 = [0:1, 3:6, :], ...   each one contiguous range of the file
//
// A tile is a box whose axes before `axis` have extent 1, after it are whole. Tiles in
// order are the tensor in row-major order, so a tile is a range of bytes in the file,
// and the bytes do not depend on how a tensor was cut.
#ifndef TWINFORGE_EXPORTERS_TILES_H_
#define TWINFORGE_EXPORTERS_TILES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "weights/weight.h"

namespace twinforge {

struct Tiling {
  int64_t axis = 0;  // the one that is cut; 0 for a scalar
  int64_t rows = 1;  // of it in a tile; the last tile of a row may have fewer
  int64_t tiles = 1;
  int64_t cost = 0;     // bytes of memory that the largest tile needs: elements, packed bytes, scratch
  bool panels = false;  // cut across what the source has in one piece: read in column panels
};

// The largest tiles that cost at most `share` bytes; programs whose rows are rows of their
// sources get no more than `preferred` bytes of result, since larger ones gain nothing and
// leave the cache. If not even one granule fits, `cost` is above `share`.
Tiling Cut(const WeightPtr& program, int64_t share, int64_t preferred);

// About the least that any cut of the tensor costs.
int64_t LeastCost(const WeightPtr& program);

// Elements of tile `at` as a box, and its place: the element where it begins.
Box TileBox(const WeightPtr& program, const Tiling& tiling, int64_t at, int64_t* first);

// Whether a contiguous run of `elements` of the result is far apart in the sources, because
// a transpose stands between.
bool Scattered(const WeightPtr& program, int64_t elements);

}  // namespace twinforge

#endif  // TWINFORGE_EXPORTERS_TILES_H_
