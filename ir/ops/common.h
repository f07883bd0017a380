// What the decompositions of several composites share.
#ifndef TWINFORGE_IR_OPS_COMMON_H_
#define TWINFORGE_IR_OPS_COMMON_H_

#include "ir/ops/emitter.h"

namespace twinforge {

// x times the kernel in `slot`: x's last axes contract the kernel's in axes, its lead and out axes follow.
// With `bias`, if that slot is filled, plus the bias over the last axes. In x's dtype.
NodeId Project(Emitter& emit, NodeId x, absl::string_view slot, absl::string_view bias = "");

// x plus the vector in `slot` over x's last axes, if the slot is filled.
NodeId AddBias(Emitter& emit, NodeId x, absl::string_view slot);

// exp(x - max) / sum along the last axis, in f32 or wider.
NodeId Softmax(Emitter& emit, NodeId x);

// x / sqrt(sum of squares / width + eps) * (offset + scale), along the last axis.
struct RmsSettings {
  absl::string_view slot;
  double eps = 0, offset = 0;
  int64_t width = 0;  // 0: the logical size of the scale's axis
};
NodeId Normalize(Emitter& emit, NodeId x, const RmsSettings& settings);
// x (in f32 or wider) times (offset + the vector in `slot`), rounded to `dtype`.
NodeId ScaleBy(Emitter& emit, NodeId x, absl::string_view slot, double offset, DType dtype);

// Computed in f32 or wider and rounded once.
NodeId Activate(Emitter& emit, Activation act, NodeId x);

// What a gated block does before `down`: act(gate) * up, or the clamped form (MlpAttrs).
NodeId Gate(Emitter& emit, const MlpAttrs& attrs, NodeId gate, NodeId up);

// ln(1 + exp(x)), as max(x, 0) + ln(1 + exp(-|x|)) so that nothing overflows.
NodeId SoftPlus(Emitter& emit, NodeId x);

// cap * tanh(x / cap); x itself where cap is 0.
NodeId SoftCap(Emitter& emit, NodeId x, double cap);

// Enumerations are open in proto3: a text may hold a number that has no name.
bool IsActivation(Activation act);
absl::Status VerifyNorm(const Graph& graph, const Node& node);
absl::Status VerifyMlp(const Node& node, const MlpAttrs& attrs);
absl::Status VerifyRouter(const Node& node, const RouterAttrs& attrs, int64_t experts);
absl::Status VerifyRope(const Node& node, const Rope& rope, int64_t head_dim);

}  // namespace twinforge

#endif  // TWINFORGE_IR_OPS_COMMON_H_
