// The middle of every softmax attention: scores, mask, softmax, mixture.
#ifndef TWINFORGE_IR_OPS_ATTEND_H_
#define TWINFORGE_IR_OPS_ATTEND_H_

#include "ir/ops/emitter.h"

namespace twinforge {

struct AttendInputs {
  NodeId q = -1;      // [batch, seq, heads, width]
  NodeId k = -1;      // [batch, keys, kv_heads, width]; heads share in groups of heads / kv_heads neighbours
  NodeId v = -1;      // [batch, keys, kv_heads, v_width]
  NodeId past = -1;   // how many keys came before the first query, a scalar i32; -1: none
  NodeId starts = -1;  // [batch] the first key that is no padding, i32; -1: 0 throughout
  NodeId sinks = -1;  // [heads] logits that take part in the softmax and carry no value; -1: none
  AttentionAttrs attrs;  // scale, causal, window, softcap, chunk, alibi
};

// [batch, seq, heads, v_width], in q's dtype.
NodeId Attend(Emitter& emit, const AttendInputs& in);

// What the node remembers in state slot `slot`, [batch, past, ..], followed by `fresh` [batch, seq, ..]:
// becomes the new state, and is returned with axis 1 called "keys". Without state: `fresh` alone.
NodeId Remember(Emitter& emit, size_t slot, NodeId fresh);
// How many tokens came before: the extent of state slot 0. -1 without state.
NodeId Past(Emitter& emit);

// The verdict on what Attend() takes from attributes.
absl::Status VerifyScores(const Node& node, const AttentionAttrs& attrs, int64_t heads);

}  // namespace twinforge

#endif  // TWINFORGE_IR_OPS_ATTEND_H_
