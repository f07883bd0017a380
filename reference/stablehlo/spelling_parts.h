// The spellings that take several operations. Private to spelling.cc.
#ifndef TWINFORGE_REFERENCE_STABLEHLO_SPELLING_PARTS_H_
#define TWINFORGE_REFERENCE_STABLEHLO_SPELLING_PARTS_H_

#include "reference/stablehlo/spelling.h"

namespace twinforge {

// StableHLO has no erf. In f32, by the quotient of polynomials that XLA itself uses, within 1e-7 (coefficients:
// Eigen, Apache-2.0, `generic_fast_erf`). In f64, which no TPU computes in, by CHLO's op.
MlirValue SpellErf(const Spelling& row, const SpellingInput& in);
// A stable sort of values with their places, largest first, then the first k places.
MlirValue SpellTopK(const Spelling& row, const SpellingInput& in);
MlirValue SpellConv(const Spelling& row, const SpellingInput& in);
// A loop over axis 1 that carries h and fills the result.
MlirValue SpellScan(const Spelling& row, const SpellingInput& in);

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_STABLEHLO_SPELLING_PARTS_H_
