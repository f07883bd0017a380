#include "transforms/weight_ops.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/ops/shapes.h"
#include "ir/text.h"
#include "transforms/edit.h"
#include "weights/build.h"

namespace twinforge {
namespace {

// The one value of a constant, spread or not; nothing where `node` is no such.
std::optional<double> OneValue(const Graph& graph, const Node& node) {
  if (node.op == OpKind::kBroadcast) return OneValue(graph, graph.node(node.operands[0]));
  if (node.op != OpKind::kConstant || node.attrs->constant().values_size() != 1) return std::nullopt;
  return node.attrs->constant().values(0);
}

bool IsSharded(const ParamType& type) {
  return std::any_of(type.axes.begin(), type.axes.end(),
                     [](const ParamAxis& axis) { return axis.shards > 1; });
}

bool IsSplit(const ParamType& type, size_t axis) { return type.axes[axis].shards > 1; }

int PlaceOfSlice(const Type& type, const std::string& name) {
  for (size_t i = 0; i < type.axes.size(); ++i) {
    if (type.axes[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

std::optional<PlannedParam> Refuse(std::string& reason, std::string why) {
  reason = std::move(why);
  return std::nullopt;
}

// Which side of `type` the axes in places [first, first + count) of a permutation come from, or -1 for
// several: 0 lead, 1 in, 2 out.
int SideOf(const ParamType& type, absl::Span<const int64_t> places) {
  const auto side = [&](int64_t place) {
    return place < type.lead ? 0 : place < type.lead + type.in ? 1 : 2;
  };
  for (int64_t place : places) {
    if (side(place) != side(places[0])) return -1;
  }
  return places.empty() ? -1 : side(places[0]);
}

// A kernel turned over lies the other way round in its file, which stays as it was.
std::optional<PlannedParam> PlanTranspose(const Node& node, PlannedParam plan) {
  const auto& permutation = node.attrs->transpose().permutation();
  const std::vector<int64_t> perm(permutation.begin(), permutation.end());
  const ParamType old = plan.type;
  for (size_t i = 0; i < perm.size(); ++i) plan.type.axes[i] = old.axes[perm[i]];
  plan.program = Transpose(plan.program, perm);
  const size_t lead = old.lead, in = old.in, out = perm.size() - lead - in;
  const absl::Span<const int64_t> places(perm);
  const bool lead_stays = lead == 0 || SideOf(old, places.subspan(0, lead)) == 0;
  const bool kernel = old.in > 0;
  if (kernel && lead_stays && SideOf(old, places.subspan(lead, out)) == 2) {
    plan.type.in = static_cast<int>(out);
    const bool out_in = plan.storage.orientation == Orientation::kOutIn;
    plan.storage.orientation = out_in ? Orientation::kInOut : Orientation::kOutIn;
  } else if (!kernel || !lead_stays || SideOf(old, places.subspan(lead, in)) != 1) {
    plan.type.lead = plan.type.in = 0;
    plan.storage = Storage();
  }
  return plan;
}

std::optional<PlannedParam> PlanReshape(const Node& node, PlannedParam plan, std::string& reason) {
  if (IsSharded(plan.type)) return Refuse(reason, "an axis is split over devices, and the reshape moves it");
  plan.type.axes.clear();
  plan.type.lead = plan.type.in = 0;
  for (const Axis& axis : node.type.axes) {
    const std::optional<int64_t> size = axis.size.value();
    if (!size) return Refuse(reason, absl::StrCat("axis ", axis.name, " has no size of its own"));
    plan.type.axes.push_back({axis.name, *size, axis.logical != 0 ? axis.logical : *size});
  }
  plan.program = Reshape(plan.program, plan.type.shape());
  plan.storage = Storage();
  return plan;
}

std::optional<PlannedParam> PlanConvert(const Node& node, PlannedParam plan, std::string& reason) {
  const DType from = plan.type.dtype, to = node.type.dtype;
  if (!IsStorageFloat(from) || !IsStorageFloat(to)) {
    return Refuse(reason, absl::StrCat("from ", Name(from), " to ", Name(to), " a program rounds otherwise"));
  }
  plan.type.dtype = to;
  plan.program = Cast(plan.program, to);
  return plan;
}

// `axis` of `plan` becomes `map`, all of whose places count.
std::optional<PlannedParam> Mapped(PlannedParam plan, int axis, const IndexMap& map, double fill,
                                   std::string& reason) {
  ParamAxis& changed = plan.type.axes[axis];
  if (changed.shards > 1) return Refuse(reason, absl::StrCat(changed.name, " is split over devices"));
  changed.size = changed.logical = map.size();
  plan.program = Take(plan.program, axis, map, fill);
  return plan;
}

std::optional<PlannedParam> PlanPad(const Node& node, PlannedParam plan, std::string& reason) {
  const PadAttrs& pad = node.attrs->pad();
  if (pad.interior() != 0) return Refuse(reason, "it pads between places");
  if (!IsFloat(plan.type.dtype)) return Refuse(reason, "it pads what are no floats");
  const int axis = static_cast<int>(pad.axis());
  const IndexMap map = IndexMap::Join(
      {IndexMap::Fill(pad.low()), IndexMap::Identity(plan.type.axes[axis].size), IndexMap::Fill(pad.high())});
  return Mapped(std::move(plan), axis, map, pad.value(), reason);
}

std::optional<PlannedParam> PlanSlice(const Graph& graph, const Node& node, PlannedParam plan,
                                      std::string& reason) {
  const SliceAttrs& slice = node.attrs->slice();
  const int axis = PlaceOfSlice(graph.node(node.operands[0]).type, slice.axis());
  return Mapped(std::move(plan), axis, IndexMap::Slice(slice.start(), slice.size()), 0, reason);
}

std::optional<PlannedParam> PlanConcat(const Node& node, absl::Span<const PlannedParam> operands,
                                       std::string& reason) {
  PlannedParam plan = operands[0];
  const size_t axis = node.attrs->axis().axis();
  std::vector<WeightPtr> programs;
  plan.type.axes[axis].size = 0;
  for (const PlannedParam& operand : operands) {
    if (IsSplit(operand.type, axis)) return Refuse(reason, "the joined axis is split over devices");
    plan.type.axes[axis].size += operand.type.axes[axis].size;
    plan.fidelity = std::min(plan.fidelity, operand.fidelity);
    programs.push_back(operand.program);
  }
  plan.type.axes[axis].logical =
      operands.size() > 1 ? plan.type.axes[axis].size : operands[0].type.axes[axis].logical;
  if (plan.storage.per_expert && axis == 0) plan.storage.per_expert = false;
  plan.program = Concat(static_cast<int64_t>(axis), std::move(programs));
  return plan;
}

// The factor as the graph has it: a value of the product's type.
double RoundedTo(DType dtype, double value) {
  std::byte bytes[8] = {};
  FromDouble(dtype, value, bytes);
  return ToDouble(dtype, bytes);
}

std::optional<PlannedParam> PlanMultiply(const Graph& graph, const Node& node, PlannedParam plan,
                                         std::string& reason) {
  const DType dtype = plan.type.dtype;
  if (!IsFloat(dtype)) return Refuse(reason, "it multiplies what are no floats");
  const std::optional<double> left = OneValue(graph, graph.node(node.operands[0]));
  const double given = left ? *left : *OneValue(graph, graph.node(node.operands[1]));
  const double factor = RoundedTo(dtype, given);
  if (!std::isfinite(factor)) return Refuse(reason, absl::StrCat("the factor ", given, " is not finite"));
  plan.program = Scale(plan.program, factor);
  plan.fidelity = std::min(plan.fidelity, Fidelity::kReassociated);
  return plan;
}

std::optional<PlannedParam> Plan(const Graph& graph, const Node& node,
                                 absl::Span<const PlannedParam> operands, std::string& reason) {
  switch (node.op) {
    case OpKind::kTranspose:
      return PlanTranspose(node, operands[0]);
    case OpKind::kReshape:
      return PlanReshape(node, operands[0], reason);
    case OpKind::kConvert:
      return PlanConvert(node, operands[0], reason);
    case OpKind::kSlice:
      return PlanSlice(graph, node, operands[0], reason);
    case OpKind::kConcat:
      return PlanConcat(node, operands, reason);
    case OpKind::kPad:
      return PlanPad(node, operands[0], reason);
    case OpKind::kMultiply:
      return PlanMultiply(graph, node, operands[0], reason);
    default:
      return std::nullopt;  // ReadsWeightsAlone() lets no other pass
  }
}

}  // namespace

bool ReadsWeightsAlone(const Graph& graph, const Node& node, absl::Span<const NodeId> weights) {
  switch (node.op) {
    case OpKind::kTranspose:
    case OpKind::kReshape:
    case OpKind::kConvert:
    case OpKind::kSlice:
    case OpKind::kConcat:
    case OpKind::kPad:
      return weights.size() == node.operands.size();
    case OpKind::kMultiply:
      break;
    default:
      return false;
  }
  if (weights.size() != 1) return false;
  const NodeId other = node.operands[0] == weights[0] ? node.operands[1] : node.operands[0];
  return OneValue(graph, graph.node(other)).has_value();
}

std::optional<PlannedParam> PlanWeightOp(const Graph& graph, const Node& node,
                                         absl::Span<const PlannedParam> operands, std::string& reason) {
  std::optional<PlannedParam> plan = Plan(graph, node, operands, reason);
  if (!plan) return plan;
  // A parameter says its types in its own way: what its users are given must be what they were given.
  Type type{plan->type.dtype, {}};
  for (const ParamAxis& axis : plan->type.axes) type.axes.push_back(ActivationAxis(axis));
  if (type == node.type) return plan;
  return Refuse(reason, absl::StrCat("as a parameter it would be ", Text(type), ", not ", Text(node.type)));
}

std::string WhyNoPartition(const Graph& graph, const Node& weight, absl::Span<const NodeId> users) {
  const Node& first = graph.node(users[0]);
  if (users.size() == 1 && first.op != OpKind::kSlice) return "";
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (NodeId user : users) {
    const Node& node = graph.node(user);
    if (node.op != OpKind::kSlice || node.attrs->slice().axis() != first.attrs->slice().axis())
      return absl::StrCat(first.path, " and ", node.path, " would both hold places of ", weight.path);
    ranges.emplace_back(node.attrs->slice().start(), node.attrs->slice().size());
  }
  std::sort(ranges.begin(), ranges.end());
  int64_t at = 0;
  for (const auto& [start, size] : ranges) {
    if (start < at) return absl::StrCat("two slices would hold place ", start, " of ", weight.path);
    if (start > at) break;
    at += size;
  }
  const int axis = PlaceOfSlice(weight.type, first.attrs->slice().axis());
  if (weight.type.axes[axis].size.value() == at) return "";
  return absl::StrCat("no slice reads place ", at, " of ", first.attrs->slice().axis(), " in ", weight.path,
                      ", and no tensor would hold it");
}

}  // namespace twinforge
