#include "reference/onnx/attention_match.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

namespace twinforge {
namespace {

// The operand of a node of that kind, or -1.
NodeId Below(const Graph& graph, NodeId id, OpKind op, size_t operand = 0) {
  return id >= 0 && graph.node(id).op == op ? graph.node(id).operands[operand] : -1;
}

// The operand of a broadcast of a reduction of `kind` along the last axis, or -1.
NodeId BelowReduced(const Graph& graph, NodeId id, ReduceAttrs::Kind kind) {
  const NodeId reduced = Below(graph, id, OpKind::kBroadcast);
  const NodeId from = Below(graph, reduced, OpKind::kReduce);
  if (from < 0) return -1;
  const ReduceAttrs& attrs = graph.node(reduced).attrs->reduce();
  const auto last = static_cast<int64_t>(graph.node(from).type.axes.size()) - 1;
  return attrs.kind() == kind && attrs.axes_size() == 1 && attrs.axes(0) == last ? from : -1;
}

NodeId Unconverted(const Graph& graph, NodeId id) {
  const NodeId below = Below(graph, id, OpKind::kConvert);
  return below < 0 ? id : below;
}

// The one value of a constant.
std::optional<double> ValueAt(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  if (node.op != OpKind::kConstant || node.attrs->constant().values_size() != 1) return std::nullopt;
  return node.attrs->constant().values(0);
}

template <typename Repeated>
bool Are(const Repeated& places, std::initializer_list<int64_t> want) {
  return std::equal(places.begin(), places.end(), want.begin(), want.end());
}

}  // namespace

NodeId UnderSoftmax(const Graph& graph, NodeId id) {
  const NodeId e = Below(graph, id, OpKind::kDivide);
  if (e < 0 || BelowReduced(graph, graph.node(id).operands[1], ReduceAttrs::SUM) != e) return -1;
  const NodeId shifted = Below(graph, e, OpKind::kExp), w = Below(graph, shifted, OpKind::kSubtract);
  if (w < 0 || BelowReduced(graph, graph.node(shifted).operands[1], ReduceAttrs::MAX) != w) return -1;
  return w;
}

std::optional<MatchedAttention> MatchAttention(const Graph& graph, const Node& mixed) {
  if (mixed.op != OpKind::kDot) return std::nullopt;
  const DotAttrs& mixing = mixed.attrs->dot();
  if (!Are(mixing.lhs_batch(), {0, 1}) || !Are(mixing.rhs_batch(), {0, 2}) ||
      !Are(mixing.lhs_contract(), {4}) || !Are(mixing.rhs_contract(), {1})) {
    return std::nullopt;
  }
  MatchedAttention found;
  found.v = mixed.operands[1];
  NodeId scores = UnderSoftmax(graph, Unconverted(graph, mixed.operands[0]));
  if (scores < 0) return std::nullopt;
  scores = Unconverted(graph, scores);
  while (graph.node(scores).op == OpKind::kSelect) {
    const Node& masked = graph.node(scores);
    const std::optional<double> hidden = ValueAt(graph, masked.operands[2]);
    if (graph.node(masked.operands[0]).op != OpKind::kBroadcast || !hidden || !std::isinf(*hidden))
      return std::nullopt;
    found.seen.push_back(masked.operands[0]);
    scores = masked.operands[1];
  }
  const NodeId dot = Below(graph, scores, OpKind::kMultiply);
  if (dot < 0 || graph.node(dot).op != OpKind::kDot) return std::nullopt;
  const std::optional<double> scale = ValueAt(graph, graph.node(scores).operands[1]);
  const DotAttrs& scoring = graph.node(dot).attrs->dot();
  if (!scale || !Are(scoring.lhs_batch(), {0, 2}) || !Are(scoring.rhs_batch(), {0, 2}) ||
      !Are(scoring.lhs_contract(), {4}) || !Are(scoring.rhs_contract(), {3})) {
    return std::nullopt;
  }
  found.scale = *scale;
  found.q = graph.node(dot).operands[0];
  found.k = graph.node(dot).operands[1];
  return found;
}

}  // namespace twinforge
