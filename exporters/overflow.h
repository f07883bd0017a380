// No weight becomes infinite by what a recipe computed of it.
//
//   bf16 [3.0e38] * 1.25  ->  inf in bf16, 3.75e38 in real arithmetic: refused (TF1613)
//   bf16 [inf]    * 1.25  ->  inf, as the source says: passed on
//
// Scaling, folding and casting can leave a type's range where the source's numbers are near its end. Which
// ones are only the bytes say, so each tile is looked at as it is written; what only moves numbers is not.
#ifndef TWINFORGE_EXPORTERS_OVERFLOW_H_
#define TWINFORGE_EXPORTERS_OVERFLOW_H_

#include "absl/status/status.h"
#include "exporters/exporter.h"
#include "weights/read.h"

namespace twinforge {

// Whether `program` computes numbers of a type that has infinities: else there is nothing to look for.
bool MayOverflow(const WeightPtr& program);

// Refuses a tile whose `elements` hold an infinity or NaN where the program's value in real arithmetic is
// finite. `box` is the tile, `elements` its unpacked elements in row-major order.
absl::Status CheckRange(const OutputTensor& tensor, const Box& box, const std::byte* elements,
                        const TensorReader& reader, const StatCache* stats);

}  // namespace twinforge

#endif  // TWINFORGE_EXPORTERS_OVERFLOW_H_
