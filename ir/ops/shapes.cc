#include "ir/ops/shapes.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"

namespace twinforge {
namespace {

// Whether an activation's axis has the extent that a parameter contracts.
bool Fits(const Axis& axis, const ParamAxis& param) {
  return axis.size.value() == param.size && axis.logical == (param.padded() ? param.logical : 0);
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

}  // namespace

absl::Status Misfit(const Node& node, absl::string_view message) { return Error(1501, node.path, message); }

Axis ActivationAxis(const ParamAxis& axis) {
  return Axis{axis.name, Dim(axis.size), axis.padded() ? axis.logical : 0};
}

absl::StatusOr<const Param*> ParamIn(const Graph& graph, const Node& node, absl::string_view slot) {
  const absl::string_view role = node.Role(slot);
  const Param* param = role.empty() ? nullptr : graph.FindParam(role);
  if (param == nullptr) return Misfit(node, absl::StrCat("no parameter in slot ", slot));
  return param;
}

const Type& OperandType(const Graph& graph, const Node& node, size_t i) {
  return graph.node(node.operands[i]).type;
}

absl::StatusOr<Type> Through(const Graph& graph, const Node& node, absl::string_view first,
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
  return Replace(node, OperandType(graph, node), r, r.lead, r.in, std::move(out));
}

absl::StatusOr<Type> AlongLast(const Graph& graph, const Node& node, absl::string_view slot) {
  TWIN_ASSIGN_OR_RETURN(const Param* vector, ParamIn(graph, node, slot));
  if (vector->type.axes.empty()) return Misfit(node, absl::StrCat("the ", slot, " has no axis"));
  return Replace(node, OperandType(graph, node), vector->type, 0, 1, {ActivationAxis(vector->type.axes[0])});
}

bool HasSequence(const Graph& graph, const Node& node) { return OperandType(graph, node).axes.size() == 3; }

bool IsPositive(double x) { return std::isfinite(x) && x > 0; }
bool IsNotNegative(double x) { return std::isfinite(x) && x >= 0; }

absl::Status AllOrNone(const Node& node, std::initializer_list<absl::string_view> slots) {
  const absl::string_view first = *slots.begin();
  for (absl::string_view slot : slots) {
    if (node.Has(slot) != node.Has(first)) {
      return Misfit(node, absl::StrCat("slots ", first, " and ", slot, " come together or not at all"));
    }
  }
  return absl::OkStatus();
}

absl::Status NothingToVerify(const Graph&, const Node&) { return absl::OkStatus(); }

}  // namespace twinforge
