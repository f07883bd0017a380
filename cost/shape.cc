#include "cost/shape.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace twinforge {
namespace {

constexpr int64_t kLanes = 128;
constexpr int64_t kTileRows = 8;
constexpr int64_t kVectorTile = 1024;  // elements, of one-dimensional arrays

// Rows of a memory tile over a second-minor dim of `rows`: narrow types pack 32 / bits rows in a word, a tile
// never has fewer, and short arrays take the next power of two of rows.
int64_t TileRows(int64_t bits, int64_t rows) {
  const int64_t packed =
      bits > 32 ? 1 : static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(32 / bits)));
  int64_t tile = packed;
  while (tile < kTileRows && tile < rows) tile *= 2;
  return tile;
}

// A scalar or a one-dimensional array: it fills whole tiles of 1,024 elements, a short one the power of two
// that holds it, at least 512 bytes.
Exact VectorBytes(int64_t bits, absl::Span<const int64_t> shape) {
  TWIN_CHECK(bits > 0, "an element has bits");
  const int64_t count = shape.empty() ? 1 : shape[0];
  int64_t tile = kLanes * TileRows(bits, 1);
  while (tile < kVectorTile && tile < count) tile *= 2;
  return RoundUp(count, tile) * bits / 8;
}

// With the dim `minor` along the lanes and `second` along the sublanes.
Exact TiledBytes(int64_t bits, absl::Span<const int64_t> shape, size_t minor, size_t second) {
  TWIN_CHECK(bits > 0, "an element has bits");
  const int64_t rows = shape[second];
  Exact elements = RoundUp(shape[minor], kLanes) * RoundUp(rows, TileRows(bits, rows));
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i != minor && i != second) elements = elements * shape[i];
  }
  return elements * bits / 8;
}

// Operands that both lie in registers of `a` and `b` bits: the wider one sets the tensor core's k.
int64_t WiderBits(const Product& product) {
  return std::max(BitWidth(product.left), BitWidth(product.right));
}

Exact TensorCoreMacs(const Product& p, const ShapeRule& rule) {
  const int64_t tile_k = std::max<int64_t>(1, rule.tile_k_bits / WiderBits(p));
  const Exact tile = Exact(rule.tile_m) * rule.tile_n;
  switch (p.kind) {
    case Product::Kind::kDense: {
      const Exact straight = RoundUp(p.m, rule.tile_m) * RoundUp(p.n, rule.tile_n);
      const Exact turned = RoundUp(p.n, rule.tile_m) * RoundUp(p.m, rule.tile_n);
      return Min(straight, turned) * RoundUp(p.k, tile_k) * p.count;
    }
    case Product::Kind::kScores:
      return Exact(CeilDiv(p.pairs, rule.tile_m * rule.tile_n)) * tile * RoundUp(p.k, tile_k) * p.count;
    case Product::Kind::kMix: {
      // A tile holds tile_m x tile_k pairs, or with the operands turned tile_n x tile_k.
      const Exact straight = RoundUp(p.pairs, rule.tile_m * tile_k) * RoundUp(p.n, rule.tile_n);
      const Exact turned = RoundUp(p.pairs, rule.tile_n * tile_k) * RoundUp(p.n, rule.tile_m);
      return Min(straight, turned) * p.count;
    }
  }
  return 0;
}

}  // namespace

Exact Macs(const Product& p) {
  switch (p.kind) {
    case Product::Kind::kDense:
      return Exact(p.m) * p.k * p.n * p.count;
    case Product::Kind::kScores:
      return Exact(p.pairs) * p.k * p.count;
    case Product::Kind::kMix:
      return Exact(p.pairs) * p.n * p.count;
  }
  return 0;
}

Exact SystolicRows(const Product& p, const ShapeRule& rule) {
  const int64_t edge = rule.edge;
  switch (p.kind) {
    case Product::Kind::kDense: {
      const Exact right_stays = Exact(CeilDiv(p.n, edge)) * RoundUp(p.m, rule.sublanes);
      const Exact left_stays = Exact(CeilDiv(p.m, edge)) * RoundUp(p.n, rule.sublanes);
      return Exact(CeilDiv(p.k, edge)) * Min(right_stays, left_stays) * p.count;
    }
    // A row that passes a fold makes at most `edge` scores; the operands' parts are symmetric.
    case Product::Kind::kScores:
      return Exact(CeilDiv(p.k, edge)) * CeilDiv(p.pairs, edge) * p.count;
    case Product::Kind::kMix: {
      const Exact values_stay = Exact(CeilDiv(p.n, edge)) * CeilDiv(p.pairs, edge);
      const Exact scores_stay = RoundUp(p.n, rule.sublanes) * CeilDiv(p.pairs, edge * edge);
      return Min(values_stay, scores_stay) * p.count;
    }
  }
  return 0;
}

Exact TileMacs(const Product& p, const ShapeRule& rule) {
  if (rule.edge == 0) return TensorCoreMacs(p, rule);
  const Exact rows = SystolicRows(p, rule);
  if (!rows.ok()) return rows;
  // Groups of rows are dealt to the units; the fullest unit sets the time of all.
  const Exact groups = CeilDiv(CeilDiv(rows.value(), rule.sublanes), rule.units);
  return groups * rule.sublanes * rule.units * rule.edge * rule.edge;
}

Exact ExposedPreloadCycles(int64_t m, int64_t k, int64_t n, int64_t rows, int64_t columns) {
  const Exact folds = Exact(CeilDiv(k, rows)) * CeilDiv(n, columns);
  return folds * (Exact(m) + 2 * rows + columns + -2);
}

Exact PaddedBytes(int64_t bits, absl::Span<const int64_t> shape) {
  if (shape.size() < 2) return VectorBytes(bits, shape);
  Exact best;
  bool found = false;
  for (size_t minor = 0; minor < shape.size(); ++minor) {
    for (size_t second = 0; second < shape.size(); ++second) {
      if (second == minor) continue;
      const Exact bytes = TiledBytes(bits, shape, minor, second);
      best = found ? Min(best, bytes) : bytes;
      found = true;
    }
  }
  return best;
}

Exact RowMajorBytes(int64_t bits, absl::Span<const int64_t> shape) {
  if (shape.size() < 2) return VectorBytes(bits, shape);
  return TiledBytes(bits, shape, shape.size() - 1, shape.size() - 2);
}

Exact PaddedBytes(DType dtype, absl::Span<const int64_t> shape) {
  return PaddedBytes(BitWidth(dtype), shape);
}

Exact CompactBytes(DType dtype, absl::Span<const int64_t> shape) {
  Exact elements = 1;
  for (int64_t extent : shape) elements = elements * extent;
  const Exact total = elements * BitWidth(dtype);
  return total.ok() ? Exact(CeilDiv(total.value(), 8)) : total;
}

}  // namespace twinforge
