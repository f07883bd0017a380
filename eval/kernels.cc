#include "eval/kernels.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"

namespace twinforge {
namespace {

// The axis that a gather reads along, as its operand's type has it: a padded place is no place.
Axis GatheredAxis(const Graph& graph, const Node& node) {
  return graph.node(node.operands[0]).type.axes[node.attrs->axis().axis()];
}

// What a symbol hid from inference: a slice or a choice that the extent does not hold.
absl::Status CheckReach(const Graph& graph, const Node& node, const Tensor& x, const Shape& shape) {
  const bool slice = node.op == OpKind::kSlice;
  const size_t axis = slice ? SlicedAxis(graph, node) : shape.size() - 1;
  const int64_t start = slice ? node.attrs->slice().start() : 0;
  if (start <= x.shape()[axis] - shape[axis]) return absl::OkStatus();
  return Error(
      1901, node.path,
      absl::StrCat(shape[axis], " places from ", start, " on are not in an axis of ", x.shape()[axis]));
}

absl::StatusOr<std::vector<double>> Values(const Graph& graph, const Node& node, absl::Span<const Tensor> x,
                                           const Shape& shape) {
  switch (node.op) {
    case OpKind::kConstant:
    case OpKind::kIota:
    case OpKind::kDimensionSize:
      return EvalSource(node, x, shape);
    case OpKind::kAdd:
    case OpKind::kSubtract:
    case OpKind::kMultiply:
    case OpKind::kDivide:
    case OpKind::kMaximum:
    case OpKind::kMinimum:
    case OpKind::kPower:
    case OpKind::kCompare:
    case OpKind::kNegate:
    case OpKind::kAbs:
    case OpKind::kExp:
    case OpKind::kLog:
    case OpKind::kSqrt:
    case OpKind::kRsqrt:
    case OpKind::kTanh:
    case OpKind::kErf:
    case OpKind::kSine:
    case OpKind::kCosine:
    case OpKind::kLogistic:
    case OpKind::kFloor:
    case OpKind::kSign:
    case OpKind::kConvert:
    case OpKind::kSelect:
      return EvalElementwise(node, x);
    case OpKind::kBroadcast:
    case OpKind::kReshape:
    case OpKind::kTranspose:
    case OpKind::kSlice:
    case OpKind::kConcat:
    case OpKind::kPad:
    case OpKind::kReverse:
      return EvalShape(graph, node, x, shape);
    case OpKind::kReduce:
      return EvalReduce(node, x[0]);
    case OpKind::kDot:
      return EvalDot(node, x[0], x[1]);
    case OpKind::kGather:
      return EvalGather(node, x[0], x[1], GatheredAxis(graph, node));
    case OpKind::kTopK:
      return EvalTopK(node, x[0]);
    case OpKind::kConv:
      return EvalConv(node, x[0], x[1], shape);
    case OpKind::kScan:
      return EvalScan(node, x);
    case OpKind::kOpaque:
      return Error(1903, node.path,
                   absl::StrCat("an imported op that is carried along, not evaluated: ",
                                node.attrs->opaque().domain(), ".", node.attrs->opaque().op()));
    case OpKind::kInput:
    case OpKind::kParam:
    case OpKind::kLinear:
    case OpKind::kEmbedding:
    case OpKind::kRmsNorm:
    case OpKind::kLayerNorm:
    case OpKind::kAttention:
    case OpKind::kLatentAttention:
    case OpKind::kMlp:
    case OpKind::kGatedMlp:
    case OpKind::kMoe:
    case OpKind::kLmHead:
    case OpKind::kActivation:
    case OpKind::kRope:
    case OpKind::kRouter:
    case OpKind::kConvStem:
    case OpKind::kShortConv:
    case OpKind::kStateSpace:
    case OpKind::kDeltaRule:
      break;
  }
  TWIN_CHECK(false, "not a primitive");
}

}  // namespace

absl::StatusOr<Tensor> EvalPrimitive(const Graph& graph, const Node& node, absl::Span<const Tensor> operands,
                                     const Shape& shape) {
  if (node.op == OpKind::kSlice || node.op == OpKind::kTopK) {
    TWIN_RETURN_IF_ERROR(CheckReach(graph, node, operands[0], shape));
  }
  // What neither computes nor moves an element shares it.
  if (node.op == OpKind::kReshape) return operands[0].Reshaped(shape);
  TWIN_ASSIGN_OR_RETURN(std::vector<double> values, Values(graph, node, operands, shape));
  RoundTo(node.type.dtype, values);
  return Tensor(node.type.dtype, shape, std::move(values));
}

}  // namespace twinforge
