// Result types. What an op needs of its operand is the size of the axes that its
// parameters contract; names are the parameter's own, so that a square linear may call
// its result's axis what the next op calls its operand's.
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "ir/verify.h"

namespace twinforge {
namespace {

absl::Status Misfit(const Node& node, absl::string_view message) { return Error(1501, node.path, message); }

Axis ActivationAxis(const ParamAxis& axis) {
  return Axis{axis.name, Dim(axis.size), axis.padded() ? axis.logical : 0};
}

// Whether an activation's axis has the extent that a parameter contracts.
bool Fits(const Axis& axis, const ParamAxis& param) {
  return axis.size.value() == param.size && axis.logical == (param.padded() ? param.logical : 0);
}

absl::StatusOr<const Param*> ParamIn(const Graph& graph, const Node& node, absl::string_view slot) {
  const absl::string_view role = node.Role(slot);
  const Param* param = role.empty() ? nullptr : graph.FindParam(role);
  if (param == nullptr) return Misfit(node, absl::StrCat("no parameter in slot ", slot));
  return param;
}

// `x` with its last `in` axes, which must fit axes [first, first + in) of `from`, replaced by `out`.
absl::StatusOr<Type> Replace(const Node& node, const Type& x, const ParamType& from, int first, int in,
                             std::vector<Axis> out) {
  const int rank = static_cast<int>(x.axes.size());
  if (rank < in) return Misfit(node, absl::StrCat("the operand is ", Text(x), ", of too low a rank"));
  for (int i = 0; i < in; ++i) {
    const Axis& have = x.axes[rank - in + i];
    const ParamAxis& want = from.axes[first + i];
    if (!Fits(have, want)) {
      return Misfit(node, absl::StrCat("axis ", have.name, " of the operand ", Text(x), " does not fit ",
                                       want.name, " of the parameter ", Text(from)));
    }
  }
  Type result{x.dtype, {x.axes.begin(), x.axes.end() - in}};
  for (Axis& axis : out) result.axes.push_back(std::move(axis));
  return result;
}

// x kernel, where `first` is the kernel that reads x and `last` the one that writes the result.
absl::StatusOr<Type> Through(const Graph& graph, const Node& node, const Type& x, absl::string_view first,
                             absl::string_view last) {
  TWIN_ASSIGN_OR_RETURN(const Param* reads, ParamIn(graph, node, first));
  TWIN_ASSIGN_OR_RETURN(const Param* writes, ParamIn(graph, node, last));
  const ParamType& r = reads->type;
  const ParamType& w = writes->type;
  if (r.in < 1 || w.in < 1 || r.lead + r.in > static_cast<int>(r.axes.size())) {
    return Misfit(node, "a kernel has no in axes");
  }
  std::vector<Axis> out;
  for (size_t i = w.lead + w.in; i < w.axes.size(); ++i) out.push_back(ActivationAxis(w.axes[i]));
  return Replace(node, x, r, r.lead, r.in, std::move(out));
}

absl::StatusOr<Type> InferAdd(const Node& node, const Type& x, const Type& y) {
  if (x.axes == y.axes) return x;
  return Misfit(node, absl::StrCat("operands of unequal axes: ", Text(x), " and ", Text(y)));
}

absl::StatusOr<Type> InferNorm(const Graph& graph, const Node& node, const Type& x) {
  TWIN_ASSIGN_OR_RETURN(const Param* scale, ParamIn(graph, node, "scale"));
  if (scale->type.axes.empty()) return Misfit(node, "the scale has no axis");
  return Replace(node, x, scale->type, 0, 1, {ActivationAxis(scale->type.axes[0])});
}

absl::StatusOr<Type> InferEmbedding(const Graph& graph, const Node& node, const Type& x) {
  TWIN_ASSIGN_OR_RETURN(const Param* table, ParamIn(graph, node, "table"));
  if (table->type.axes.size() != 2) return Misfit(node, "the table is not a matrix");
  Type result{table->type.dtype, x.axes};
  result.axes.push_back(ActivationAxis(table->type.axes[1]));
  return result;
}

// The head slices: what leaves the graph never shows a padded vocabulary.
absl::StatusOr<Type> InferHead(const Graph& graph, const Node& node, const Type& x) {
  TWIN_ASSIGN_OR_RETURN(Type result, Through(graph, node, x, "head", "head"));
  Axis& vocab = result.axes.back();
  if (vocab.logical != 0) vocab.size = Dim(vocab.logical);
  vocab.logical = 0;
  return result;
}

absl::StatusOr<Type> InferSlice(const Node& node, Type x) {
  const SliceAttrs& attrs = node.attrs->slice();
  for (Axis& axis : x.axes) {
    if (axis.name != attrs.axis()) continue;
    if (attrs.start() < 0 || attrs.size() < 1) return Misfit(node, "a slice starts before 0 or is empty");
    const std::optional<int64_t> extent = axis.size.value();
    if (extent && (attrs.start() > *extent || attrs.size() > *extent - attrs.start())) {
      return Misfit(node, absl::StrCat("the slice reaches beyond ", axis.name, "=", *extent));
    }
    axis.size = Dim(attrs.size());
    axis.logical = 0;
    return x;
  }
  return Misfit(node, absl::StrCat("the operand has no axis ", attrs.axis()));
}

}  // namespace

absl::StatusOr<Type> InferType(const Graph& graph, const Node& node) {
  if (node.op == OpKind::kInput) return node.type;
  const OpInfo& info = Info(node.op);
  if (static_cast<int>(node.operands.size()) != info.operands) {
    return Misfit(node,
                  absl::StrCat(info.name, " takes ", info.operands, " operands, not ", node.operands.size()));
  }
  const Type& x = graph.node(node.operands[0]).type;
  switch (node.op) {
    case OpKind::kInput:
      break;
    case OpKind::kAdd:
      return InferAdd(node, x, graph.node(node.operands[1]).type);
    case OpKind::kActivation:
      return x;
    case OpKind::kSlice:
      return InferSlice(node, x);
    case OpKind::kLinear:
      return Through(graph, node, x, "kernel", "kernel");
    case OpKind::kEmbedding:
      return InferEmbedding(graph, node, x);
    case OpKind::kRmsNorm:
    case OpKind::kLayerNorm:
      return InferNorm(graph, node, x);
    case OpKind::kAttention:
      return Through(graph, node, x, "q", "o");
    case OpKind::kLatentAttention:
      return Through(graph, node, x, "kv_a", "o");
    case OpKind::kMlp:
      return Through(graph, node, x, "up", "down");
    case OpKind::kGatedMlp:
      return Through(graph, node, x, "gate", "down");
    case OpKind::kMoe:
      return Through(graph, node, x, "router", "down");
    case OpKind::kLmHead:
      return InferHead(graph, node, x);
  }
  return Misfit(node, "unknown op");
}

}  // namespace twinforge
