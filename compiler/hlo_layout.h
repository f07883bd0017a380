// Shapes and tiled layouts of the TPU compiler: as it prints them, and how many bytes they take.
//
//   bf16[8,4096]{1,0:T(8,128)(2,1)}
//   dims, the minor one first, then tiles: rows of 8 by 128 elements, in each of which pairs of rows
//   interleave
#ifndef TWINFORGE_COMPILER_HLO_LAYOUT_H_
#define TWINFORGE_COMPILER_HLO_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compiler/xla.pb.h"

namespace twinforge {

// A shape read and checked: every number that is computed from it fits 63 bits.
struct HloArray {
  std::string shape;  // "bf16[8,4096]", without layout
  std::vector<int64_t> dims;
  int64_t bits = 0;  // of an element
  std::string
      layout;  // "{1,0:T(8,128)(2,1)}"; S(n) is a memory other than the main one; "" where none is said
  int64_t memory = 0;  // 0 main memory, 1 VMEM
  int64_t bytes = 0;   // unpadded
  int64_t padded_bytes = 0;
};

// The size of an element in bits and its name; bits 0: a type that has no bytes or is not known.
struct HloType {
  absl::string_view name;
  int64_t bits = 0;
};
HloType HloTypeOf(int32_t primitive_type);

// TF2106 for a tuple, an unknown type, a layout that does not fit its shape, or sizes beyond 2^62 bytes.
absl::StatusOr<HloArray> ReadHloArray(const xla::Shape& shape);

// Elements that a shape takes under a layout, tile padding included. The rule is XLA's: a tile covers the
// minor dims of what the tile before left, and each is rounded up.
absl::StatusOr<int64_t> PaddedElements(const xla::Shape& shape);

}  // namespace twinforge

#endif  // TWINFORGE_COMPILER_HLO_LAYOUT_H_
