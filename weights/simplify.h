// One gather per tensor: the table of rewrites that keeps programs small.
//
// Bottom-up, one switch, no fixed point. compose takes on one axis; compose transposes;
// drop identities; merge reshapes; flatten concats; take of concat selects operands;
// adjacent slices of one operand in a concat join again; take moves below transpose and
// cast; take and transpose move across a reshape that splits or merges axes (block
// take); cast of cast where the middle is wide enough; fill absorbs movement. So what a
// layout wraps on import and wraps again on export vanishes, and the bytes are copied.
//
// Promise: the result has the same dtype, shape and elements, bit for bit; a program
// that is already simple comes back as the same object; Simplify(Simplify(w)) is
// Simplify(w). build.h calls it on every node it makes, so callers rarely do.
#ifndef TWINFORGE_WEIGHTS_SIMPLIFY_H_
#define TWINFORGE_WEIGHTS_SIMPLIFY_H_

#include "weights/weight.h"

namespace twinforge {

WeightPtr Simplify(const WeightPtr& w);

// Program `w` with each source named in `bindings` replaced by that program (same
// dtype and shape). For composing a twin's programs with those of its own source.
using Bindings = std::vector<std::pair<std::string, WeightPtr>>;  // ascending by name
WeightPtr Substitute(const WeightPtr& w, const Bindings& bindings);

}  // namespace twinforge

#endif  // TWINFORGE_WEIGHTS_SIMPLIFY_H_
