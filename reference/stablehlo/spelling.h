// How each primitive of the house is said in StableHLO: one row an op, or the reason why there is none.
#ifndef TWINFORGE_REFERENCE_STABLEHLO_SPELLING_H_
#define TWINFORGE_REFERENCE_STABLEHLO_SPELLING_H_

#include <vector>

#include "absl/types/span.h"
#include "ir/graph.h"
#include "reference/stablehlo/mlir_body.h"

namespace twinforge {

// One node to be said. `type` is its result with every symbol a number.
struct SpellingInput {
  MlirBody& body;
  const Graph& graph;
  const Node& node;
  const std::vector<MlirValue>& x;  // its operands
  const MlirType& type;
};

struct Spelling {
  OpKind kind;
  absl::string_view says;  // the op of StableHLO that carries the meaning; "" where there is none
  absl::string_view note;  // what is said otherwise, or why it is refused
  MlirValue (*write)(const Spelling& row, const SpellingInput& in);  // null: an argument, or refused
};

// Every primitive of ir/op.h, in its order.
absl::Span<const Spelling> Spellings();

// Appends the node. REQUIRES: its row can be written.
MlirValue Spell(const SpellingInput& in);

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_STABLEHLO_SPELLING_H_
