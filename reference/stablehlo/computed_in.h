// The same graph with its floating values in another type.
#ifndef TWINFORGE_REFERENCE_STABLEHLO_COMPUTED_IN_H_
#define TWINFORGE_REFERENCE_STABLEHLO_COMPUTED_IN_H_

#include "absl/status/statusor.h"
#include "ir/graph.h"

namespace twinforge {

// `graph` with every floating parameter cast to `dtype`; what composites compute in f32 whatever the type is
// (norms, softmax, angles) is f32 or wider. TF1620 where primitives say a type of their own.
absl::StatusOr<Graph> ComputedIn(const Graph& graph, DType dtype);

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_STABLEHLO_COMPUTED_IN_H_
