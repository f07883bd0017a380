#include "cost/layer_shape.h"

#include <algorithm>

namespace twinforge {
namespace {

const Node* FirstOf(const Graph& graph, std::initializer_list<OpKind> kinds) {
  for (const Node& node : graph.nodes()) {
    if (std::find(kinds.begin(), kinds.end(), node.op) != kinds.end()) return &node;
  }
  return nullptr;
}

int64_t SizeOf(const ParamType& type, absl::string_view axis, int64_t absent) {
  const int at = type.Find(axis);
  return at < 0 ? absent : type.axes[at].size;
}

}  // namespace

std::optional<CompiledShape> LayerShapeOf(const Graph& graph) {
  const Node* attention = FirstOf(graph, {OpKind::kAttention});
  const Node* ffn = FirstOf(graph, {OpKind::kMlp, OpKind::kGatedMlp, OpKind::kMoe});
  if (attention == nullptr || ffn == nullptr || !attention->Has("q") || !attention->Has("k"))
    return std::nullopt;
  const ParamType& q = graph.param(*attention, "q").type;
  const ParamType& k = graph.param(*attention, "k").type;
  const ParamType& up = graph.param(*ffn, "up").type;
  CompiledShape shape;
  shape.d_model = SizeOf(q, "d_model", 0);
  shape.heads = SizeOf(q, "heads", 0);
  shape.head_dim = SizeOf(q, "head_dim", 0);
  shape.kv_heads = SizeOf(k, "kv_heads", 0);
  shape.d_ff = SizeOf(up, "d_ff", 0) * SizeOf(up, "member", 1);
  shape.experts = SizeOf(up, "expert", SizeOf(up, "expert_group", 1));
  shape.gated = ffn->Has("gate");
  return shape;
}

std::optional<CompiledShape> HeadShapeOf(const Graph& graph) {
  const Node* node = FirstOf(graph, {OpKind::kLmHead});
  if (node == nullptr || !node->Has("head")) return std::nullopt;
  const ParamType& head = graph.param(*node, "head").type;
  CompiledShape shape;
  shape.d_model = SizeOf(head, "d_model", 0);
  shape.vocab = SizeOf(head, "vocab", 0);
  return shape;
}

int64_t ExpertGroupOf(const Graph& graph) {
  const Node* moe = FirstOf(graph, {OpKind::kMoe});
  return moe == nullptr || !moe->Has("up") ? 1 : SizeOf(graph.param(*moe, "up").type, "member", 1);
}

}  // namespace twinforge
