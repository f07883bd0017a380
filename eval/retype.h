// A graph whose floating values are all in one type.
#ifndef TWINFORGE_EVAL_RETYPE_H_
#define TWINFORGE_EVAL_RETYPE_H_

#include "absl/status/statusor.h"
#include "ir/graph.h"

namespace twinforge {

// The dtype that most bytes of parameters have; f32 where there are none.
DType DTypeOfMost(const Graph& graph);

// `graph` with every parameter cast to `dtype` (or its program unrounded, params.h), and with inputs and
// written types following. f64 and f32 replace every floating type. bf16 and f16 replace the one that most
// parameters have: what a lowered graph computes in f32 stays there.
// TF1501 where the types no longer fit together.
absl::StatusOr<Graph> Retyped(const Graph& graph, DType dtype, bool unrounded);

}  // namespace twinforge

#endif  // TWINFORGE_EVAL_RETYPE_H_
