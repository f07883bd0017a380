// What shapes cost: folds of a systolic array, tiles of a tensor core, tiles of memory.
//
//   SystolicRows({m, k, n}, rule)     rows that pass a matrix unit, of one stationary operand or the other
//   TileMacs(product, rule)           multiply-adds that the unit spends, idle places included
//   PaddedBytes(f32, {1024, 80})      327,680: the compiler lays the 1024 along the lanes, nothing is padded
//   RowMajorBytes(32, {1024, 80})     524,288: the 80 takes 128 lanes
//
// Closed forms, all exact. They are bounds under a named constraint: one product at a time fills a unit (two
// small products do not share a fold).
#ifndef TWINFORGE_COST_SHAPE_H_
#define TWINFORGE_COST_SHAPE_H_

#include <cstdint>

#include "absl/types/span.h"
#include "cost/chip.h"
#include "cost/exact.h"
#include "weights/dtype.h"

namespace twinforge {

// One matrix product [m, k] x [k, n] as one device runs it, `count` times.
//
// Causal and windowed attention need only some of the m x n scores. Then `pairs` of them are needed, kernels
// skip what they can, and the bound counts pairs instead of a rectangle:
//   kScores   q k^T      pairs of m x n outputs, each of k multiply-adds
//   kMix      p v        pairs of m x k operand places, each times n columns
struct Product {
  enum class Kind : uint8_t { kDense, kScores, kMix };
  Kind kind = Kind::kDense;
  int64_t m = 0;
  int64_t k = 0;
  int64_t n = 0;
  int64_t count = 1;
  int64_t pairs = 0;           // kScores, kMix
  DType left = DType::kBF16;   // [m, k]
  DType right = DType::kBF16;  // [k, n]
  bool attention = false;      // between activations: queries, keys and values; no weight
  Exact useful;                // multiply-adds at logical sizes, of all devices and all `count`
};

// Multiply-adds that the product needs, all `count` of them.
Exact Macs(const Product& product);

// Rows that stream through a systolic array of rule.edge x rule.edge: folds ceil(k/R) ceil(n/C), each of m
// rows in groups of `sublanes`, or with the other operand stationary, whichever is fewer. All `count`
// products.
Exact SystolicRows(const Product& product, const ShapeRule& rule);

// Multiply-adds that the matrix units spend, idle places included, with the rows spread over the units.
// Never below Macs().
Exact TileMacs(const Product& product, const ShapeRule& rule);

// Cycles of a weight-stationary array with exposed preload: F (m + 2R + C - 2), F = ceil(k/R) ceil(n/C).
// SCALE-Sim's figure, for comparison with it; no rung uses it, since no TPU is known to expose its preload.
Exact ExposedPreloadCycles(int64_t m, int64_t k, int64_t n, int64_t rows, int64_t columns);

// Bytes of a dense array in a TPU's memory, in the layout that the compiler chooses by default: of all
// choices of the two minor dims the one that pads least. The same on every generation. Tiles: (8, 128)
// elements; fewer rows where the second-minor dim is smaller; 1-D arrays in tiles of 1,024 elements, short
// ones in the next power of two, from 512 bytes on.
Exact PaddedBytes(DType dtype, absl::Span<const int64_t> shape);
// The same for `bits`-wide elements: 4 (int4), 8, 16 or 32, and multiples.
Exact PaddedBytes(int64_t bits, absl::Span<const int64_t> shape);
// With the last dim along the lanes and the one before along the sublanes: what a program gets that fixes the
// row-major layout. Never below PaddedBytes().
Exact RowMajorBytes(int64_t bits, absl::Span<const int64_t> shape);

// Bytes without any padding, rounded up to whole bytes.
Exact CompactBytes(DType dtype, absl::Span<const int64_t> shape);

}  // namespace twinforge

#endif  // TWINFORGE_COST_SHAPE_H_
