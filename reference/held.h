// A parameter as its file has it: transposes are left to the products that read it.
#ifndef TWINFORGE_REFERENCE_HELD_H_
#define TWINFORGE_REFERENCE_HELD_H_

#include "absl/status/statusor.h"
#include "reference/program.h"

namespace twinforge {

// `program` yields the canonical `param`. With `keep_axes` the axes keep their canonical order.
absl::StatusOr<HeldParam> HoldParam(const Param& param, const WeightPtr& program, bool keep_axes,
                                    int64_t layer);

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_HELD_H_
