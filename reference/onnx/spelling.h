// How each primitive of the house is said in ONNX: one row an op, or the reason why there is none.
#ifndef TWINFORGE_REFERENCE_ONNX_SPELLING_H_
#define TWINFORGE_REFERENCE_ONNX_SPELLING_H_

#include <vector>

#include "absl/types/span.h"
#include "ir/graph.h"
#include "reference/onnx/laid_value.h"

namespace twinforge {

// One node to be said.
struct OnnxSpellingInput {
  OnnxBody& body;
  const Graph& graph;
  const Node& node;
  const std::vector<LaidValue>& x;  // its operands
};

struct OnnxSpelling {
  OpKind kind;
  absl::string_view says;  // the operator that carries the meaning; "" where nothing needs to be said
  absl::string_view note;  // what is said otherwise, or why it is refused
  LaidValue (*write)(const OnnxSpelling& row, const OnnxSpellingInput& in);  // null: an input, or refused
};

// Every primitive of ir/op.h, in its order.
absl::Span<const OnnxSpelling> OnnxSpellings();

// TF1622 where its row has nothing to write.
absl::StatusOr<LaidValue> SpellInOnnx(const OnnxSpellingInput& in);

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_ONNX_SPELLING_H_
