// Which experts see a token, and with what weight: (logits [.., expert] [, correction [expert]]) -> weights
// [.., expert], 0 where an expert was not chosen. In f32 or wider, rounded to the logits' dtype.
//
//   SOFTMAX_ALL   softmax over all experts, then the k largest                      mixtral, qwen3_moe
//   SOFTMAX_TOP   the k largest logits, then softmax over those                     gpt-oss
//   SIGMOID       each logit's logistic; chosen by score + correction, first among groups   deepseek_v3
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ir/ops/common.h"
#include "ir/ops/composite.h"
#include "ir/ops/shapes.h"

namespace twinforge {
namespace {

absl::StatusOr<Type> Infer(const Graph& graph, const Node& node) {
  const Type& logits = OperandType(graph, node);
  if (logits.axes.empty() || !logits.axes.back().size.value() || !IsFloat(logits.dtype)) {
    return Misfit(node, absl::StrCat(Text(logits), " are no logits"));
  }
  if (node.operands.size() == 1) return logits;
  const Type& correction = OperandType(graph, node, 1);
  if (IsFloat(correction.dtype) && correction.axes.size() == 1 &&
      correction.axes[0].size == logits.axes.back().size) {
    return logits;
  }
  return Misfit(node, absl::StrCat(Text(correction), " corrects no ", Text(logits)));
}

absl::Status Check(const Graph& graph, const Node& node) {
  TWIN_RETURN_IF_ERROR(Infer(graph, node).status());
  const Axis& expert = OperandType(graph, node).axes.back();
  return VerifyRouter(node, node.attrs->router(),
                      expert.logical != 0 ? expert.logical : *expert.size.value());
}

// 1 at the places in `index` [.., k], else 0: [.., k, n] of `dtype`, where n is `axis`.
NodeId OneHot(Emitter& emit, NodeId index, const Axis& axis, DType dtype) {
  std::vector<Axis> axes = emit.AxesOf(index);
  axes.push_back(axis);
  const NodeId at = emit.Iota({DType::kI32, axes}, static_cast<int>(axes.size()) - 1);
  std::vector<int> places;
  for (int i = 0; i + 1 < static_cast<int>(axes.size()); ++i) places.push_back(i);
  const NodeId chosen = emit.Compare(CompareAttrs::EQ, at, emit.Broadcast(index, axes, places));
  return emit.Convert(chosen, dtype);
}

// `choice` with all experts outside the best groups at minus infinity. A group is as good as its best two
// together.
NodeId WithinGroups(Emitter& emit, const RouterAttrs& attrs, NodeId choice) {
  const int64_t experts = emit.AxisOf(choice, -1).size.value().value_or(0);
  std::vector<Axis> axes = emit.AxesOf(choice);
  if (axes.empty()) return -1;
  const Axis groups{"router_group", Dim(attrs.groups())}, members{"member", Dim(experts / attrs.groups())};
  axes.back() = groups;
  axes.push_back(members);
  const NodeId grouped = emit.Reshape(choice, axes);
  const int last = emit.Rank(grouped) - 1;
  const NodeId best =
      emit.Gather(grouped, emit.TopK(grouped, std::min<int64_t>(2, experts / attrs.groups())), last);
  const NodeId goodness = emit.ReduceLast(ReduceAttrs::SUM, best);
  const NodeId hot = OneHot(emit, emit.TopK(goodness, attrs.top_groups()), groups, DType::kI32);
  const NodeId kept = emit.Reduce(ReduceAttrs::SUM, hot, {emit.Rank(hot) - 2});
  const NodeId seen = emit.Compare(CompareAttrs::GT, emit.SpreadFirst(kept, grouped),
                                   emit.Constant(0, {DType::kI32, emit.AxesOf(grouped)}));
  const NodeId hidden =
      emit.Select(seen, grouped, emit.Like(grouped, -std::numeric_limits<double>::infinity()));
  return emit.Reshape(hidden, emit.AxesOf(choice));
}

NodeId Scores(Emitter& emit, MoeAttrs::Score score, NodeId logits) {
  if (score == MoeAttrs::SOFTMAX_ALL) return Softmax(emit, logits);
  const NodeId wide = emit.Widen(logits);
  return score == MoeAttrs::SIGMOID ? emit.Unary(OpKind::kLogistic, wide) : wide;
}

NodeId Decompose(Emitter& emit) {
  const RouterAttrs& attrs = emit.attrs().router();
  const NodeId logits = emit.operand();
  const NodeId scores = Scores(emit, attrs.score(), logits);
  NodeId choice = scores;
  if (emit.has_operand(1)) {
    choice = emit.Add(choice, emit.SpreadLast(emit.Convert(emit.operand(1), emit.DTypeOf(choice)), choice));
  }
  if (attrs.groups() > 1) choice = WithinGroups(emit, attrs, choice);
  const NodeId chosen = emit.TopK(choice, attrs.top_k());
  NodeId weights = emit.Gather(scores, chosen, emit.Rank(scores) - 1);
  if (attrs.score() == MoeAttrs::SOFTMAX_TOP) {
    weights = Softmax(emit, weights);
  } else if (attrs.renormalize()) {
    NodeId sum = emit.ReduceLast(ReduceAttrs::SUM, weights);
    // Logistic scores may all underflow; softmax ones cannot.
    if (attrs.score() == MoeAttrs::SIGMOID) sum = emit.Shift(sum, 1e-20);
    weights = emit.Divide(weights, emit.SpreadFirst(sum, weights));
  }
  if (attrs.routed_scale() != 0 && attrs.routed_scale() != 1)
    weights = emit.Scale(weights, attrs.routed_scale());
  const NodeId hot = OneHot(emit, chosen, emit.AxisOf(logits, -1), emit.DTypeOf(weights));
  const NodeId dense = emit.Multiply(hot, emit.SpreadFirst(weights, hot));
  return emit.Convert(emit.Reduce(ReduceAttrs::SUM, dense, {emit.Rank(dense) - 2}), emit.DTypeOf(logits));
}

}  // namespace

absl::Status VerifyRouter(const Node& node, const RouterAttrs& attrs, int64_t experts) {
  if (attrs.top_k() < 1 || attrs.top_k() > experts) {
    return Misfit(node, absl::StrCat("top_k ", attrs.top_k(), " of ", experts, " experts"));
  }
  if (!MoeAttrs::Score_IsValid(attrs.score())) return Misfit(node, "unknown score");
  if (!IsNotNegative(attrs.routed_scale()))
    return Misfit(node, absl::StrCat("routed_scale is ", attrs.routed_scale()));
  if (attrs.groups() < 0 || attrs.top_groups() < 0 || attrs.top_groups() > attrs.groups() ||
      (attrs.groups() > 0 && experts % attrs.groups() != 0)) {
    return Misfit(node, absl::StrCat("top ", attrs.top_groups(), " of ", attrs.groups(), " groups of ",
                                     experts, " experts"));
  }
  return absl::OkStatus();
}

const CompositeOp kRouterOp = {Infer, Check, Decompose};

}  // namespace twinforge
