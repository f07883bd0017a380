// What a kernel must know of a composite beside its operands: its attributes, as a dictionary of MLIR.
#ifndef TWINFORGE_REFERENCE_STABLEHLO_COMPOSITE_ATTRIBUTES_H_
#define TWINFORGE_REFERENCE_STABLEHLO_COMPOSITE_ATTRIBUTES_H_

#include <string>

#include "ir/graph.h"

namespace twinforge {

// "{causal = true, rope = {rotary_dim = 64 : i64, style = \"HALVES\", theta = 1.0e+04 : f64}, scale = 0.125 : f64}":
// the fields of ir/ops.proto that are not at their default.
std::string CompositeAttributes(const Node& node);

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_STABLEHLO_COMPOSITE_ATTRIBUTES_H_
