#include "ir/verify.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "ir/builder.h"
#include "ir/ops/composite.h"

namespace twinforge {
namespace {

absl::Status Fault(absl::string_view place, absl::string_view message) { return Error(1501, place, message); }

// Names go into texts unquoted.
bool IsName(absl::string_view name) {
  return !name.empty() && name.size() <= 1024 && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '-';
  });
}

bool IsAxisName(absl::string_view name) {
  return IsName(name) && !absl::ascii_isdigit(name[0]) && name.find_first_of(".-") == absl::string_view::npos;
}

// ---- parameters

bool NamesMatch(const std::vector<absl::string_view>& want, const std::vector<ParamAxis>& axes, size_t first,
                size_t count) {
  if (want.size() == 1 && want[0] == "*") return count >= 1;
  if (want.size() != count) return false;
  for (size_t i = 0; i < count; ++i) {
    if (axes[first + i].name != want[i]) return false;
  }
  return true;
}

// Which form of the slot the type has, or -1.
int FormOf(const SlotInfo& slot, const ParamType& type) {
  const size_t lead = type.lead, in = type.in, rank = type.axes.size();
  if (type.lead < 0 || type.in < 0 || lead + in > rank) return -1;
  const absl::Span<const SlotForm> forms = FormsOf(slot);
  for (size_t i = 0; i < forms.size(); ++i) {
    if (NamesMatch(forms[i].lead, type.axes, 0, lead) && NamesMatch(forms[i].in, type.axes, lead, in) &&
        NamesMatch(forms[i].out, type.axes, lead + in, rank - lead - in)) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

absl::Status VerifyParam(const Param& param, const SlotInfo& slot) {
  const ParamType& type = param.type;
  if (FormOf(slot, type) < 0) {
    return Fault(param.role, absl::StrCat("axes ", Text(type), " where the slot has [", slot.axes, "]"));
  }
  for (const ParamAxis& axis : type.axes) {
    if (!IsAxisName(axis.name)) return Fault(param.role, absl::StrCat("\"", axis.name, "\" is no axis name"));
    if (axis.shards < 1 || axis.size % axis.shards != 0) {
      return Fault(param.role, absl::StrCat("axis ", axis.name, " ", axis.size, " does not divide over ",
                                            axis.shards, " shards"));
    }
    if (axis.size < 1 || axis.logical < 1 || axis.logical > axis.size) {
      return Fault(param.role, absl::StrCat("axis ", axis.name, " has size ", axis.size, " and logical size ",
                                            axis.logical));
    }
  }
  if (!CheckedElementCount(type.shape())) return Fault(param.role, "the number of elements overflows");
  if (param.program == nullptr) return Fault(param.role, "no program");
  if (param.program->shape() != type.shape()) {
    return Fault(param.role, absl::StrCat("the program has shape ", ShapeText(param.program->shape()),
                                          ", the type ", Text(type)));
  }
  if (param.program->dtype() != type.dtype) {
    return Fault(param.role, absl::StrCat("the program has dtype ", Name(param.program->dtype()),
                                          ", the type ", Text(type)));
  }
  if (param.storage.per_expert && (type.lead != 1 || type.axes[0].name != "expert")) {
    return Fault(param.role, "stored per expert, but its leading axis is not expert");
  }
  return absl::OkStatus();
}

// ---- nodes

// One axis name, one size and one logical size within a node.
absl::Status VerifyAxes(const Graph& graph, const Node& node) {
  struct Seen {
    absl::string_view name;
    int64_t size, logical;
    absl::string_view role;
  };
  std::vector<Seen> seen;
  for (const auto& [slot, role] : node.params) {
    for (const ParamAxis& axis : graph.FindParam(role)->type.axes) {
      auto at = std::find_if(seen.begin(), seen.end(), [&](const Seen& s) { return s.name == axis.name; });
      if (at == seen.end()) {
        seen.push_back({axis.name, axis.size, axis.logical, role});
      } else if (at->size != axis.size || at->logical != axis.logical) {
        return Fault(role, absl::StrCat("axis ", axis.name, " is ", axis.size, "~", axis.logical,
                                        " here and ", at->size, "~", at->logical, " in ", at->role));
      }
    }
  }
  return absl::OkStatus();
}

bool AttrsFit(AttrsKind kind, const OpAttrs& attrs) {
  return static_cast<int>(attrs.attrs_case()) == static_cast<int>(kind);
}

// Whoever raises a node builds this composite: it must be one, with attributes of its kind and no origin.
absl::Status VerifyOrigin(const Node& node) {
  if (!node.attrs->has_origin()) return absl::OkStatus();
  const Origin& origin = node.attrs->origin();
  const std::optional<OpKind> op = OpKindFromName(origin.op());
  if (op && Info(*op).composite != nullptr && AttrsFit(Info(*op).attrs, origin.attrs()) &&
      !origin.attrs().has_origin()) {
    return absl::OkStatus();
  }
  return Fault(node.path, absl::StrCat("it comes of ", JsonQuoted(origin.op()),
                                       ", which is no composite, or another one's attributes"));
}

absl::Status VerifySlots(const Graph& graph, const Node& node) {
  size_t next = 0;
  for (const SlotInfo& slot : Info(node.op).slots) {
    if (next >= node.params.size() || node.params[next].first != slot.name) {
      if (slot.required) return Fault(node.path, absl::StrCat("no parameter in slot ", slot.name));
      continue;
    }
    const std::string& role = node.params[next++].second;
    if (role != RoleOf(node.op, node.path, slot.name)) return Fault(role, "the role is not the slot's");
    const Param* param = graph.FindParam(role);
    if (param == nullptr) return Fault(role, "no such parameter");
    TWIN_RETURN_IF_ERROR(VerifyParam(*param, slot));
  }
  if (next == node.params.size()) return absl::OkStatus();
  return Fault(node.path, absl::StrCat("slot ", node.params[next].first, " is unknown or out of order"));
}

absl::Status VerifyInput(const Graph& graph, const Node& node, NodeId id) {
  // Inputs stand in the graph's heading, so they come first and in order.
  if (static_cast<size_t>(id) >= graph.inputs().size() || graph.inputs()[id] != id) {
    return Fault(node.path, "an input comes after another node");
  }
  for (const Axis& axis : node.type.axes) {
    const std::optional<int64_t> size = axis.size.value();
    if (!IsAxisName(axis.name)) return Fault(node.path, absl::StrCat("\"", axis.name, "\" is no axis name"));
    if ((size && *size < 1) || axis.logical < 0 || (size && axis.logical > *size)) {
      return Fault(node.path, absl::StrCat("axis ", axis.name, " has size ", axis.size.Text(),
                                           " and logical size ", axis.logical));
    }
  }
  return absl::OkStatus();
}

absl::Status VerifyNode(const Graph& graph, const Node& node, NodeId id) {
  if (node.id != id) return Fault(node.path, "the node's id is not its position");
  if (!IsName(node.path)) return Fault(node.path, "a path has letters, digits, '_', '.' and '-' only");
  for (NodeId operand : node.operands) {
    if (operand < 0 || operand >= id) return Fault(node.path, "an operand does not come before its user");
  }
  if (node.attrs == nullptr || !AttrsFit(Info(node.op).attrs, *node.attrs)) {
    return Fault(node.path, absl::StrCat("the attributes are not those of ", Info(node.op).name));
  }
  TWIN_RETURN_IF_ERROR(VerifyOrigin(node));
  if (node.op == OpKind::kInput) TWIN_RETURN_IF_ERROR(VerifyInput(graph, node, id));
  TWIN_RETURN_IF_ERROR(VerifySlots(graph, node));
  TWIN_RETURN_IF_ERROR(VerifyAxes(graph, node));
  if (const CompositeOp* composite = Info(node.op).composite) {
    TWIN_RETURN_IF_ERROR(composite->verify(graph, node));
  }
  TWIN_ASSIGN_OR_RETURN(const Type type, InferType(graph, node));
  if (type == node.type) return absl::OkStatus();
  return Fault(node.path, absl::StrCat("the result is ", Text(node.type),
                                       ", its operands and parameters give ", Text(type)));
}

// ---- bundles

absl::Status VerifyMember(const Graph& graph, const Bundle& bundle, const Param& first, const Param& member) {
  const ParamType& a = first.type;
  const ParamType& b = member.type;
  if (a.dtype != b.dtype) return Fault(bundle.role, absl::StrCat(member.role, " has another dtype"));
  if (first.storage != member.storage)
    return Fault(bundle.role, absl::StrCat(member.role, " is stored otherwise"));
  if (a.lead != b.lead || a.in != b.in || a.axes.size() != b.axes.size()) {
    return Fault(bundle.role, absl::StrCat(member.role, " has axes of another kind"));
  }
  const size_t joined = a.lead + a.in;
  if (joined >= b.axes.size())
    return Fault(bundle.role, absl::StrCat(member.role, " has no axis to join along"));
  const bool concat = bundle.arrangement == Bundle::Arrangement::kConcat;
  for (size_t i = 0; i < b.axes.size(); ++i) {
    if (a.axes[i].size != b.axes[i].size && !(concat && i == joined)) {
      return Fault(bundle.role,
                   absl::StrCat("axis ", b.axes[i].name, " of ", member.role, " differs in size"));
    }
  }
  const int64_t split = b.axes[joined].shards;
  if (concat && (split != a.axes[joined].shards || (split != 1 && split != bundle.shards))) {
    return Fault(bundle.role, absl::StrCat(b.axes[joined].name, " of ", member.role, " is split over ", split,
                                           " shards, the tensor that holds it is laid for ", bundle.shards));
  }
  if (bundle.shards < 1 || b.axes[joined].size % bundle.shards != 0) {
    return Fault(bundle.role, absl::StrCat(b.axes[joined].name, " ", b.axes[joined].size, " of ", member.role,
                                           " does not divide into ", bundle.shards, " shards"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status VerifyBundle(const Graph& graph, const Bundle& bundle) {
  if (!IsName(bundle.role)) return Fault(bundle.role, "a role has letters, digits, '_', '.' and '-' only");
  if (graph.FindParam(bundle.role) != nullptr) return Fault(bundle.role, "a parameter has the bundle's role");
  if (bundle.members.size() < 2) return Fault(bundle.role, "a bundle joins at least two parameters");
  if (bundle.arrangement == Bundle::Arrangement::kInterleave && bundle.shards != 1) {
    return Fault(bundle.role, "interleaved members are not split into shards");
  }
  const Param* first = graph.FindParam(bundle.members[0]);
  for (const std::string& role : bundle.members) {
    const Param* member = graph.FindParam(role);
    if (member == nullptr) return Fault(bundle.role, absl::StrCat("no parameter ", role));
    if (graph.BundleOf(role) != &bundle) return Fault(bundle.role, absl::StrCat(role, " is in two bundles"));
    TWIN_RETURN_IF_ERROR(VerifyMember(graph, bundle, *first, *member));
  }
  return absl::OkStatus();
}

namespace {

// ---- stacks

// The parameters of one stored tensor: a bundle's members, or the one; empty where there is no such tensor.
std::vector<const Param*> ParamsOfTensor(const Graph& graph, absl::string_view role, const Bundle*& bundle) {
  bundle = nullptr;
  for (const Bundle& candidate : graph.bundles()) {
    if (candidate.role == role) bundle = &candidate;
  }
  std::vector<const Param*> params;
  if (bundle != nullptr) {
    for (const std::string& member : bundle->members) params.push_back(graph.FindParam(member));
  } else if (const Param* param = graph.FindParam(role);
             param != nullptr && graph.BundleOf(role) == nullptr) {
    params.push_back(param);
  }
  return params;
}

absl::Status VerifyStack(const Graph& graph, const LayerStack& stack) {
  if (!IsName(stack.role)) return Fault(stack.role, "a role has letters, digits, '_', '.' and '-' only");
  const Bundle *first_bundle = nullptr, *bundle = nullptr;
  if (!ParamsOfTensor(graph, stack.role, bundle).empty())
    return Fault(stack.role, "a parameter has the stack's role");
  if (stack.members.size() < 2) return Fault(stack.role, "a stack holds at least two layers");
  const std::vector<const Param*> first = ParamsOfTensor(graph, stack.members[0], first_bundle);
  for (const std::string& member : stack.members) {
    const std::vector<const Param*> params = ParamsOfTensor(graph, member, bundle);
    if (params.empty()) return Fault(stack.role, absl::StrCat(member, " is no stored tensor"));
    if (graph.StackOf(member) != &stack) return Fault(stack.role, absl::StrCat(member, " is in two stacks"));
    const auto alike = [](const Param* a, const Param* b) {
      return a->type == b->type && a->storage == b->storage;
    };
    if (!std::equal(first.begin(), first.end(), params.begin(), params.end(), alike) ||
        (bundle == nullptr) != (first_bundle == nullptr) ||
        (bundle != nullptr &&
         (bundle->arrangement != first_bundle->arrangement || bundle->shards != first_bundle->shards))) {
      return Fault(stack.role, absl::StrCat(member, " is not stored as ", stack.members[0], " is"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Verify(const Graph& graph) {
  if (!IsName(graph.name()))
    return Fault(graph.name(), "a graph's name has letters, digits, '_', '.' and '-' only");
  if (graph.inputs().size() > graph.nodes().size()) return Fault(graph.name(), "an input is no node");
  size_t held = 0;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    TWIN_RETURN_IF_ERROR(VerifyNode(graph, node, static_cast<NodeId>(i)));
    if (graph.FindNode(node.path) != &node) return Fault(node.path, "two nodes have this path");
    held += node.params.size();
  }
  // Roles follow from paths and slots, so each is held once, and equal counts mean that all are held.
  if (held != graph.params().size()) return Fault(graph.name(), "a parameter belongs to no node");
  for (const Bundle& bundle : graph.bundles()) TWIN_RETURN_IF_ERROR(VerifyBundle(graph, bundle));
  for (const LayerStack& stack : graph.stacks()) TWIN_RETURN_IF_ERROR(VerifyStack(graph, stack));
  if (graph.outputs().empty()) return Fault(graph.name(), "the graph has no output");
  std::set<absl::string_view> names;
  for (const auto& [name, value] : graph.outputs()) {
    if (!IsName(name) || !names.insert(name).second)
      return Fault(name, "the output's name is taken or malformed");
    if (value < 0 || static_cast<size_t>(value) >= graph.nodes().size()) return Fault(name, "no such value");
  }
  return absl::OkStatus();
}

}  // namespace twinforge
