// The printed form of a weight program, and its parser: canonical, and parse(print(w)) is w.
//
//   source("model.embed.weight": bf16[300, 64])
//   fill(0: bf16[20, 64])
//   take(X, 0, [0:300 fill:20])          take(X, 0, [0:300 fill:20], -inf)
//   transpose(X, [1, 0])   reshape(X, [64, 4, 16])   concat(1, X, Y)   cast(X, f32)
//   mul(X, Y)  add  sub  div             contract(X, Y)
//   stat(absmax, X, [0, 1])              keep(X, 0, 2 of 4)
//   scale(X, 0, 32, i8)                  codes(X, 0, 32, i8)
//
// Numbers print with the fewest digits that mean the same value to their dtype. Names are
// JSON strings. The parser treats its input as hostile: depth, sizes and shapes are
// checked, and a mistake is a status that names line and column, never a check failure.
//
// The parser makes what is written, verb for verb; what may not be simple goes through
// Simplify(). A printed program is a tree: what several parents share is printed for each.
#ifndef TWINFORGE_WEIGHTS_TEXT_H_
#define TWINFORGE_WEIGHTS_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "weights/weight.h"

namespace twinforge {

std::string Text(const WeightPtr& w);
absl::StatusOr<WeightPtr> ParseWeight(absl::string_view text);

}  // namespace twinforge

#endif  // TWINFORGE_WEIGHTS_TEXT_H_
