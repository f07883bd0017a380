// Finds softmax attention in a decomposition (ir/ops/attend.h), where ONNX's Attention means just that:
// scores scaled and masked, no softcap, no slopes, no sinks. Private to this folder.
//
// With a softcap the operator's text changed its order between releases, so there primitives are written.
#ifndef TWINFORGE_REFERENCE_ONNX_ATTENTION_MATCH_H_
#define TWINFORGE_REFERENCE_ONNX_ATTENTION_MATCH_H_

#include <optional>
#include <vector>

#include "ir/graph.h"

namespace twinforge {

// The node of w in e / sum e with e = exp(w - max w), all along the last axis, where `id` is that quotient;
// else -1.
NodeId UnderSoftmax(const Graph& graph, NodeId id);

struct MatchedAttention {
  NodeId q = -1;          // [batch, seq, kv_heads, group, width]
  NodeId k = -1, v = -1;  // [batch, keys, kv_heads, width]
  double scale = 1;
  std::vector<NodeId> seen;  // broadcasts of bool [seq, keys] or [batch, seq, keys]: all must hold
};

// Where `mixed` is the product of the weights with the values, [batch, kv_heads, seq, group, width].
std::optional<MatchedAttention> MatchAttention(const Graph& graph, const Node& mixed);

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_ONNX_ATTENTION_MATCH_H_
