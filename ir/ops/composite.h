// What defines a composite: its result's type, what its attributes must be, and its decomposition.
//
// One file per composite, ops/<name>.cc, which holds its definition as a constant; the row of op.cc points
// there. The decomposition is the meaning: there is no second one in the house.
#ifndef TWINFORGE_IR_OPS_COMPOSITE_H_
#define TWINFORGE_IR_OPS_COMPOSITE_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ir/decompose.h"
#include "ir/graph.h"
#include "ir/ops/emitter.h"

namespace twinforge {

struct CompositeOp {
  // The result's type; TF1501 where an operand does not fit a parameter.
  absl::StatusOr<Type> (*infer)(const Graph& graph, const Node& node);
  // Whether attributes are in range and agree with parameters (slots and axes were verified).
  absl::Status (*verify)(const Graph& graph, const Node& node);
  // Emits the meaning and returns the result. Mistakes end in the emitter's first error.
  NodeId (*decompose)(Emitter& emit);
  // What it remembers from call to call; null: nothing.
  std::vector<StateSlot> (*state)(const Graph& graph, const Node& node) = nullptr;
};

extern const CompositeOp kLinearOp;
extern const CompositeOp kEmbeddingOp;
extern const CompositeOp kRmsNormOp;
extern const CompositeOp kLayerNormOp;
extern const CompositeOp kAttentionOp;
extern const CompositeOp kLatentAttentionOp;
extern const CompositeOp kMlpOp;
extern const CompositeOp kGatedMlpOp;
extern const CompositeOp kMoeOp;
extern const CompositeOp kLmHeadOp;
extern const CompositeOp kActivationOp;
extern const CompositeOp kRopeOp;
extern const CompositeOp kRouterOp;
extern const CompositeOp kConvStemOp;
extern const CompositeOp kShortConvOp;
extern const CompositeOp kStateSpaceOp;
extern const CompositeOp kDeltaRuleOp;

}  // namespace twinforge

#endif  // TWINFORGE_IR_OPS_COMPOSITE_H_
