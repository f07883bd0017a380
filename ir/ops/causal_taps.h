// A causal depthwise convolution of few taps, as recurrent mixers put before what they remember.
#ifndef TWINFORGE_IR_OPS_CAUSAL_TAPS_H_
#define TWINFORGE_IR_OPS_CAUSAL_TAPS_H_

#include "absl/status/status.h"
#include "ir/ops/emitter.h"

namespace twinforge {

struct TapsSlots {
  absl::string_view taps;  // [tap, channels..]; the last tap meets the newest value
  absl::string_view bias;  // may be empty
  size_t state = 0;        // slot of the state: the last taps - 1 values, [batch, window, channels..]
};

// y_t = sum over j of taps[j] * x_{t - taps + 1 + j} + bias, channel by channel; x [batch, seq, channels..].
// Before the first value stand zeros, or what the state remembers.
NodeId CausalTaps(Emitter& emit, NodeId x, const TapsSlots& slots);

// silu(taps(the operand projected by `slot`)), in f32 or wider: how a recurrent mixer makes what it
// remembers.
NodeId Mixed(Emitter& emit, absl::string_view slot, const TapsSlots& taps);

// x [batch, seq, groups, channels] for each head, which share a group with their neighbours:
// [batch, seq, heads, channels].
NodeId PerHead(Emitter& emit, NodeId x, const Axis& heads);

// Whether `taps` has two taps or more, so that there is something to remember.
absl::Status NeedsTaps(const Graph& graph, const Node& node, absl::string_view taps);

// The state that goes with it: `name`, of x's dtype.
StateSlot TapsState(const Graph& graph, const Node& node, absl::string_view taps, const std::string& name);

}  // namespace twinforge

#endif  // TWINFORGE_IR_OPS_CAUSAL_TAPS_H_
