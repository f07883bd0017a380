// One gather per tensor: the table of rewrites that keeps programs small.
//
// Bottom-up, one switch, no fixed point: each rule looks at one verb and at the top of its
// operands. What a layout wraps on import and wraps again on export vanishes, and the bytes
// are copied. The order from the root down is
//
//   arithmetic with constants, casts    movement goes below them, towards the source
//   concat                              movement goes to each operand
//   reshape, transpose                  one view, in its shortest form (simplify_view.cc)
//   take                                lowest axis innermost, on the source's own axes
//
// Rules, with the places where they stop:
//
//   take of take         one axis: composed, unless both fill, and with unequal values;
//                        two axes: ordered, with the same exception
//   take of transpose    below it
//   take of reshape      below it as a take of blocks, or of the one axis of several that it
//                        moves; stays where a run cuts a block or 65,536 runs would not do
//   take of concat       along its axis, selects operands; beside it, goes to each
//   transpose, reshape   of one another: composed as strided views, undone where they undo;
//                        what permutes parts of one axis becomes a take along it, unless it
//                        is long and the parts are small
//   transpose of concat  to each operand; reshape too, where the axis stays apart
//   concat               flattened; pieces of one operand join again, also below equal
//                        transposes, reshapes, casts and factors; a constant becomes fill of
//                        the operand on its left; equal casts and factors leave it
//   cast of cast         without the middle, where that holds every value of the first type
//   movement of cast     below it, and of arithmetic with a constant; a fill goes along if
//                        some value below becomes it, else the take stays above
//   fill                 absorbs movement, casts and arithmetic
//   no elements          fill(0): nobody can tell
//
// Arithmetic is never merged, for each step rounds, nor dropped: x * 1 quiets a NaN, x + 0
// loses the sign of zero (Scale and AddConstant of build.h know those cases).
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
