// One chip as the bounds see it: rates and sizes in base units, and which mode multiplies two types.
//
// Made once from the embedded chip files (chip.proto). Whatever the files leave out is unknown here (0), and
// a formula that needs it refuses; nothing is borrowed from another chip.
#ifndef TWINFORGE_COST_CHIP_H_
#define TWINFORGE_COST_CHIP_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cost/score.h"
#include "cost/units.h"
#include "weights/dtype.h"

namespace twinforge {

class Chip;  // chip.proto

// How the matrix unit multiplies two operands: at which rate, and which of them is converted first.
struct MatmulMode {
  FlopsPerSecond rate;  // unknown: these types can't meet on this chip
  std::string dtype;    // "bf16"; "bf16 x f8_e5m2" where two types meet as they are
  bool converts_left = false;
  bool converts_right = false;
};

// The shape rule of rung R2. Exactly one of the two forms is set.
struct ShapeRule {
  int64_t edge = 0;  // systolic: R = C
  int64_t units = 0;
  int64_t sublanes = 0;  // rows come in groups of this many
  int64_t tile_m = 0;    // tensor core
  int64_t tile_n = 0;
  int64_t tile_k_bits = 0;
};

struct ChipFigures {
  ChipSummary summary;
  absl::string_view text;    // the file
  std::string unverified;    // why no score rests on it; empty: it may
  FlopsPerSecond best_rate;  // of all dense modes
  std::string best_dtype;
  ShapeRule shape;
  FlopsPerSecond vector_rate;
  int64_t memory_bytes = 0;  // usable, where a source says how much of it is
  BytesPerSecond memory_bandwidth;
  int64_t on_chip_bytes = 0;  // VMEM and CMEM of a TPU; L2, shared memory and what lies behind L2 of a GPU
  std::array<std::array<MatmulMode, kDTypeCount>, kDTypeCount> modes;  // [left][right]

  bool is_tpu() const { return summary.lanes > 0; }
};

// The figures of any chip file, also of one that lint refuses; `text` stays empty.
ChipFigures FiguresOf(const Chip& chip);

// All chips, ascending by id. Lives as long as the process.
absl::Span<const ChipFigures> AllChipFacts();

// By id, alias or name, whatever its case; TF1701 names the nearest ids.
absl::StatusOr<const ChipFigures*> FindChipFacts(absl::string_view id);

// The mode for a product of `left` (an activation) and `right` (a kernel, or another activation). TF1704
// where the chip file knows none.
absl::StatusOr<const MatmulMode*> FindMode(const ChipFigures& chip, DType left, DType right);

// What every bound needs is known: a peak, a bandwidth, memory sizes, a shape rule; else TF1706 says which
// is not. TF1709 where the figures are not verified.
absl::Status CheckFigures(const ChipFigures& chip);

}  // namespace twinforge

#endif  // TWINFORGE_COST_CHIP_H_
