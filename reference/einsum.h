// Letters of einsum for the axes of a parameter.
//
//   [d_model -> heads, head_dim], held [heads, head_dim, d_model]    "bsd,nhd->bsnh"
//
// b, s and t are the batch, the tokens and the keys.
#ifndef TWINFORGE_REFERENCE_EINSUM_H_
#define TWINFORGE_REFERENCE_EINSUM_H_

#include <string>

#include "reference/program.h"

namespace twinforge {

// One letter per axis, each axis its own.
struct AxisLetters {
  std::string held;  // of the parameter, in the order in which it is held
  std::string lead, in, out;
};
AxisLetters LettersOf(const HeldParam& held);

// x[rows, in] times the kernel: "bsd,nhd->bsnh" for rows "bs".
std::string ProductSpec(const HeldParam& kernel, absl::string_view rows = "bs");

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_EINSUM_H_
