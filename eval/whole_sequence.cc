#include "eval/whole_sequence.h"

#include <algorithm>

namespace twinforge {
namespace {

template <typename Places>
bool AnyHoldsTokens(const Type& type, const Places& places) {
  return std::any_of(places.begin(), places.end(), [&](int64_t place) {
    return place < static_cast<int64_t>(type.axes.size()) && !type.axes[place].size.value();
  });
}

bool HoldsTokens(const Type& type, int64_t place) {
  return AnyHoldsTokens(type, std::initializer_list<int64_t>{place});
}

// A pooler takes the first token by a slice, in every graph; it is no part of a block.
bool IsOverTokens(const Graph& graph, const Node& node) {
  const auto operand = [&](size_t i) -> const Type& { return graph.node(node.operands[i]).type; };
  switch (node.op) {
    case OpKind::kIota:
      return HoldsTokens(node.type, node.attrs->iota().axis());
    case OpKind::kDimensionSize:
    case OpKind::kReverse:
    case OpKind::kConcat:
    case OpKind::kGather:
      return HoldsTokens(operand(0), node.attrs->axis().axis());
    case OpKind::kPad:
      return HoldsTokens(operand(0), node.attrs->pad().axis());
    case OpKind::kReduce:
      return AnyHoldsTokens(operand(0), node.attrs->reduce().axes());
    case OpKind::kDot:
      return AnyHoldsTokens(operand(0), node.attrs->dot().lhs_contract());
    case OpKind::kTopK:
      return HoldsTokens(operand(0), static_cast<int64_t>(operand(0).axes.size()) - 1);
    case OpKind::kConv:
    case OpKind::kScan:
      return HoldsTokens(node.type, 1);
    default:
      return false;
  }
}

}  // namespace

const Node* FirstOverTokens(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    if (IsOverTokens(graph, node)) return &node;
  }
  return nullptr;
}

bool TakesTokenTypes(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& node) {
    return node.op == OpKind::kEmbedding && node.Has("type_table");
  });
}

}  // namespace twinforge
