#include "exporters/tiles.h"

#include <algorithm>
#include <vector>

#include "weights/codec.h"
#include "weights/dtype.h"
#include "weights/read.h"

namespace twinforge {
namespace {

// Elements below one index of `axis`.
int64_t Inner(const Shape& shape, int64_t axis) {
  int64_t count = 1;
  for (size_t i = axis + 1; i < shape.size(); ++i) count *= shape[i];
  return count;
}

Box BoxAt(const Shape& shape, int64_t axis, int64_t rows) {
  Box box = WholeBox(shape);
  if (shape.empty()) return box;
  for (int64_t i = 0; i < axis; ++i) box.size[i] = 1;
  box.size[axis] = rows;
  return box;
}

// Packed types are buffered twice: one byte an element, and as they lie in the file.
int64_t BufferBytes(const WeightPtr& w, int64_t elements) {
  int64_t bytes = elements * ElementBytes(w->dtype());
  if (PackingGranule(w->dtype()) > 1) bytes += elements;
  return bytes;
}

int64_t Cost(const WeightPtr& w, const Box& box) {
  return BufferBytes(w, ElementCount(box.size)) + ScratchBytes(w, box);
}

// Rows that may be cut off so that a tile fills whole bytes.
int64_t RowGranule(const WeightPtr& w, int64_t axis) {
  int64_t granule = PackingGranule(w->dtype());
  int64_t inner = Inner(w->shape(), axis);
  int64_t rows = 1;
  while (rows * inner % granule != 0) ++rows;
  return rows;
}

// The largest multiple of `granule` up to `most` whose cost and size fit; 0 if none.
int64_t LargestRows(const WeightPtr& w, int64_t axis, int64_t granule, int64_t share, int64_t limit) {
  int64_t extent = w->shape()[axis];
  int64_t most = std::clamp<int64_t>(limit / std::max<int64_t>(1, Inner(w->shape(), axis)), granule, extent);
  auto fits = [&](int64_t rows) { return Cost(w, BoxAt(w->shape(), axis, rows)) <= share; };
  if (fits(most)) return most == extent ? most : std::max(granule, most / granule * granule);
  int64_t low = 0;
  int64_t high = (most + granule - 1) / granule;  // in granules; does not fit
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    (fits(std::min(middle * granule, extent)) ? low : high) = middle;
  }
  return low * granule;
}

// Tiles that are looked at for the most costly one; more are sampled evenly.
constexpr int64_t kTilesLookedAt = 4096;

// The tile with the element at `start` along `axis` and at 0 along the others.
int64_t TileOf(const Shape& shape, const Tiling& tiling, int64_t axis, int64_t start) {
  const int64_t per_row = (shape[tiling.axis] + tiling.rows - 1) / tiling.rows;
  if (axis == tiling.axis) return start / tiling.rows;
  int64_t tile = start * per_row;
  for (int64_t i = axis + 1; i < tiling.axis; ++i) tile *= shape[i];
  return tile;
}

// Tiles in which an operand of a concat begins, is in its middle, or ends: a small operand among large ones
// may need the most room and lie between any two samples.
void AddOperandTiles(const WeightPtr& w, const Tiling& tiling, std::vector<int64_t>& tiles) {
  if (w->kind() == WeightKind::kCast) return AddOperandTiles(w->child(), tiling, tiles);
  if (w->kind() != WeightKind::kConcat || w->axis() > tiling.axis) return;
  int64_t start = 0;
  for (const WeightPtr& operand : w->children()) {
    const int64_t extent = operand->shape()[w->axis()];
    if (extent == 0) continue;
    for (int64_t at : {start, start + extent / 2, start + extent - 1})
      tiles.push_back(TileOf(w->shape(), tiling, w->axis(), at));
    start += extent;
  }
}

// Takes and concats make some tiles dearer than others.
int64_t DearestTile(const WeightPtr& w, const Tiling& tiling) {
  std::vector<int64_t> tiles = {tiling.tiles - 1};
  int64_t stride = std::max<int64_t>(1, tiling.tiles / kTilesLookedAt);
  for (int64_t tile = 0; tile < tiling.tiles; tile += stride) tiles.push_back(tile);
  if (stride > 1) AddOperandTiles(w, tiling, tiles);
  int64_t cost = 0;
  for (int64_t tile : tiles) {
    int64_t first;
    cost = std::max(cost, Cost(w, TileBox(w, tiling, tile, &first)));
  }
  return cost;
}

// With the cost of its first tile.
Tiling Make(const WeightPtr& w, int64_t axis, int64_t rows) {
  Tiling tiling;
  tiling.axis = axis;
  tiling.rows = rows;
  const Shape& shape = w->shape();
  tiling.cost = Cost(w, BoxAt(shape, axis, rows));
  if (shape.empty()) return tiling;
  tiling.tiles = rows == 0 ? 0 : (shape[axis] + rows - 1) / rows;
  for (int64_t i = 0; i < axis; ++i) tiling.tiles *= shape[i];
  tiling.panels = tiling.tiles > 1 && Scattered(w, rows * Inner(shape, axis));
  return tiling;
}

// Judged by the first tile alone.
Tiling RoughCut(const WeightPtr& w, int64_t share, int64_t preferred) {
  const Shape& shape = w->shape();
  const int64_t count = w->element_count();
  if (count == 0 || shape.empty()) {
    Tiling tiling = Make(w, 0, shape.empty() ? 1 : shape[0]);
    tiling.tiles = count == 0 ? 0 : 1;
    return tiling;
  }
  const int64_t limit = std::max<int64_t>(1, preferred / ElementBytes(w->dtype()));
  if (count <= limit && Cost(w, WholeBox(shape)) <= share) return Make(w, 0, shape[0]);
  const int64_t packing = PackingGranule(w->dtype());
  const bool scattered = Scattered(w, limit);
  Tiling least;
  for (int64_t axis = 0; axis < w->rank(); ++axis) {
    int64_t inner = Inner(shape, axis);
    // Below an axis whose rows end within a byte nothing can be cut.
    if (axis > 0 && shape[axis] * inner % packing != 0) break;
    int64_t granule = std::min(RowGranule(w, axis), shape[axis]);
    least = Make(w, axis, granule);
    // A row above the limit is cut further, unless that would cut across what is in one piece in the source.
    if (axis + 1 < w->rank() && inner > limit && !scattered) continue;
    // What a transpose scatters is read best in one piece, or in panels as wide as memory allows.
    int64_t most = Scattered(w, granule * inner) ? count : limit;
    int64_t rows = LargestRows(w, axis, granule, share, most);
    if (rows > 0) return Make(w, axis, rows);
  }
  return least;
}

}  // namespace

bool Scattered(const WeightPtr& w, int64_t elements) {
  if (elements >= w->element_count() || elements <= 0) return false;
  switch (w->kind()) {
    case WeightKind::kSource:
    case WeightKind::kStack:
    case WeightKind::kFill:
    case WeightKind::kContract:
    case WeightKind::kStat:
      return false;
    case WeightKind::kTranspose: {
      // The axes that the run cuts or fixes, from the outermost, must be the operand's own.
      const std::vector<int64_t>& perm = w->perm();
      for (int64_t i = 0; i < w->rank(); ++i) {
        if (perm[i] != i) return true;
        if (elements >= Inner(w->shape(), i)) break;
      }
      return Scattered(w->child(), elements);
    }
    case WeightKind::kTake:
    case WeightKind::kReshape:
    case WeightKind::kConcat:
    case WeightKind::kCast:
    case WeightKind::kMap:
    case WeightKind::kGroup:
      break;
  }
  for (const WeightPtr& child : w->children()) {
    // A take keeps the share of the tensor that a run covers, about.
    double share = static_cast<double>(elements) / static_cast<double>(w->element_count());
    int64_t below =
        w->kind() == WeightKind::kConcat
            ? std::min(elements, child->element_count())
            : std::max<int64_t>(1, static_cast<int64_t>(share * static_cast<double>(child->element_count())));
    if (Scattered(child, below)) return true;
  }
  return false;
}

Tiling Cut(const WeightPtr& w, int64_t share, int64_t preferred) {
  Tiling tiling = RoughCut(w, share, preferred);
  int64_t aim = share;
  while (tiling.tiles > 1) {
    tiling.cost = DearestTile(w, tiling);
    if (tiling.cost <= share) break;
    // The first tile was cheap: aim lower until the dearest fits, or nothing smaller is left.
    aim = aim / 4 * 3;
    Tiling smaller = RoughCut(w, aim, preferred);
    if (aim == 0 || (smaller.axis == tiling.axis && smaller.rows == tiling.rows && aim < tiling.cost / 64))
      break;
    tiling = smaller;
  }
  return tiling;
}

int64_t LeastCost(const WeightPtr& w) { return RoughCut(w, 1, 1).cost; }

Box TileBox(const WeightPtr& w, const Tiling& tiling, int64_t at, int64_t* first) {
  const Shape& shape = w->shape();
  *first = 0;
  if (shape.empty()) return WholeBox(shape);
  Box box = BoxAt(shape, tiling.axis, tiling.rows);
  int64_t per_row = (shape[tiling.axis] + tiling.rows - 1) / tiling.rows;
  int64_t start = at % per_row * tiling.rows;
  int64_t outer = at / per_row;
  box.start[tiling.axis] = start;
  box.size[tiling.axis] = std::min(tiling.rows, shape[tiling.axis] - start);
  *first = start * Inner(shape, tiling.axis);
  int64_t stride = Inner(shape, tiling.axis) * shape[tiling.axis];
  for (int64_t i = tiling.axis - 1; i >= 0; --i) {
    box.start[i] = outer % shape[i];
    *first += box.start[i] * stride;
    stride *= shape[i];
    outer /= shape[i];
  }
  return box;
}

}  // namespace twinforge
