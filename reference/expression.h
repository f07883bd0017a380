// A weight program that only moves, as an expression of numpy or of torch.
//
//   reshape(source("model.layers.3.self_attn.q_proj.weight"), [4, 20, 48])
//     read(f"model.layers.{i}.self_attn.q_proj.weight").reshape(4, 20, 48)
//   take(source("layers.3.attn.qkv"), 0, [80:120])
//     read(f"layers.{i}.attn.qkv")[80:120]
//
// `read` gives a stored tensor by its name; i is the layer's number.
#ifndef TWINFORGE_REFERENCE_EXPRESSION_H_
#define TWINFORGE_REFERENCE_EXPRESSION_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "weights/weight.h"

namespace twinforge {

// Where `layer` >= 0, the first number in a name that equals it is written as {i}, and so is the place of a
// layer in a stack. Other errors than absl::StatusCode::kUnimplemented there are none: a program that
// computes has no such form.
absl::StatusOr<std::string> NumpyExpression(const WeightPtr& w, int64_t layer);

// The same of torch. What no slice says is take(x, axis, range(0, 8), range(16, 24)), a function of the
// module.
absl::StatusOr<std::string> TorchExpression(const WeightPtr& w, int64_t layer);

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_EXPRESSION_H_
