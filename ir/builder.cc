#include "ir/builder.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "ir/verify.h"

namespace twinforge {

std::string RoleOf(OpKind op, absl::string_view path, absl::string_view slot) {
  const SlotInfo* info = FindSlot(op, slot);
  TWIN_CHECK(info != nullptr, absl::StrCat(Info(op).name, " has no slot ", slot));
  return info->main ? std::string(path) : absl::StrCat(path, ".", slot);
}

Builder::Builder(std::string name) { graph_.name_ = std::move(name); }

NodeId Builder::Input(std::string name, Type type) {
  if (!status_.ok()) return -1;
  if (graph_.nodes_.size() != graph_.inputs_.size()) {
    status_ = Error(1501, name, "an input comes after another node");
    return -1;
  }
  const NodeId id = Op(OpKind::kInput, std::move(name), {}, OpAttrs(), {});
  if (id < 0) return -1;
  graph_.nodes_[id].type = std::move(type);
  graph_.inputs_.push_back(id);
  return id;
}

// The parameters are moved out of their pairs, which the linter does not see through bindings.
NodeId Builder::Op(OpKind op, std::string path, std::vector<NodeId> operands, OpAttrs attrs,
                   // NOLINTNEXTLINE(performance-unnecessary-value-param)
                   std::vector<std::pair<std::string, Param>> params) {
  if (!status_.ok()) return -1;
  auto fail = [&](absl::string_view message) {
    status_ = Error(1501, path, message);
    return NodeId{-1};
  };
  const NodeId id = static_cast<NodeId>(graph_.nodes_.size());
  for (NodeId operand : operands) {
    if (operand < 0 || operand >= id) return fail("an operand does not come before its user");
  }
  if (graph_.by_path_.contains(path)) return fail("the path is taken");
  Node node;
  node.id = id;
  node.op = op;
  // In the order of the slots, whatever order they were given in.
  for (const SlotInfo& slot : Info(op).slots) {
    for (auto& [name, param] : params) {
      if (name != slot.name) continue;
      param.role = RoleOf(op, path, name);
      if (!param.type.is_kernel()) param.storage.orientation = Orientation::kOutIn;
      node.params.emplace_back(name, param.role);
      const std::string role = param.role;
      if (!graph_.params_.emplace(role, std::move(param)).second) return fail("two parameters for one role");
    }
  }
  if (node.params.size() != params.size()) return fail("a parameter for a slot that the op does not have");
  node.path = std::move(path);
  node.operands = std::move(operands);
  node.attrs = std::make_shared<const OpAttrs>(std::move(attrs));
  for (NodeId operand : node.operands) {
    std::vector<NodeId>& users = graph_.users_[operand];
    if (users.empty() || users.back() != id) users.push_back(id);
  }
  graph_.by_path_[node.path] = id;
  graph_.users_.emplace_back();
  graph_.nodes_.push_back(std::move(node));
  if (op == OpKind::kInput) return id;
  absl::StatusOr<Type> type = InferType(graph_, graph_.nodes_[id]);
  if (!type.ok()) {
    status_ = type.status();
    return -1;
  }
  graph_.nodes_[id].type = *std::move(type);
  return id;
}

NodeId Builder::Add(std::string path, NodeId x, NodeId y) {
  return Op(OpKind::kAdd, std::move(path), {x, y}, OpAttrs(), {});
}

void Builder::Output(std::string name, NodeId value) {
  if (!status_.ok()) return;
  if (value < 0 || static_cast<size_t>(value) >= graph_.nodes_.size()) {
    status_ = Error(1501, name, "the output is no value of the graph");
    return;
  }
  graph_.outputs_.emplace_back(std::move(name), value);
}

void Builder::AddBundle(Bundle bundle) {
  if (!status_.ok()) return;
  for (const std::string& member : bundle.members) {
    if (!graph_.bundle_of_.emplace(member, bundle.role).second) {
      status_ = Error(1501, member, "the parameter is in two bundles");
      return;
    }
  }
  graph_.bundles_.push_back(std::move(bundle));
}

void Builder::AddStack(LayerStack stack) {
  if (!status_.ok()) return;
  for (const std::string& member : stack.members) {
    if (!graph_.stack_of_.emplace(member, stack.role).second) {
      status_ = Error(1501, member, "it is in two stacks");
      return;
    }
  }
  graph_.stacks_.push_back(std::move(stack));
}

const Type& Builder::TypeOf(NodeId value) const {
  static const auto* const none = new Type();
  return value < 0 || static_cast<size_t>(value) >= graph_.nodes_.size() ? *none : graph_.nodes_[value].type;
}

void Builder::SetStep(NodeId node, std::string step) {
  if (status_.ok()) graph_.nodes_[node].step = std::move(step);
}

absl::StatusOr<Graph> Builder::Finish() {
  if (!status_.ok()) return status_;
  std::sort(graph_.bundles_.begin(), graph_.bundles_.end(),
            [](const Bundle& a, const Bundle& b) { return a.role < b.role; });
  std::sort(graph_.stacks_.begin(), graph_.stacks_.end(),
            [](const LayerStack& a, const LayerStack& b) { return a.role < b.role; });
  if (absl::Status status = Verify(graph_); !status.ok()) return status;
  return std::move(graph_);
}

}  // namespace twinforge
