// What a kernel must know of a composite beside its operands: its attributes, as a dictionary of MLIR.
#ifndef TWINFORGE_REFERENCE_STABLEHLO_COMPOSITE_ATTRIBUTES_H_
#define TWINFORGE_REFERENCE_STABLEHLO_COMPOSITE_ATTRIBUTES_H_

#include <string>

#include "ir/graph.h"
#include "reference/kept_groups.h"

namespace twinforge {

// "{causal = true, rope = {rotary_dim = 64 : i64, style = \"HALVES\", theta = 1.0e+04 : f64}, scale = 0.125 :
// f64}": the fields of ir/ops.proto that are not at their default.
std::string CompositeAttributes(const Node& node);
// "{along = \"in\", keep = 2 : i64, of = 4 : i64, stride = 1 : i64}"
std::string AttributesText(const KeptGroups& groups);

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_STABLEHLO_COMPOSITE_ATTRIBUTES_H_
