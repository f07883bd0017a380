#include "ir/rewriter.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "ir/builder.h"
#include "ir/verify.h"

namespace twinforge {
namespace {

auto BundleAt(std::vector<Bundle>& bundles, const std::string& role) {
  return std::lower_bound(bundles.begin(), bundles.end(), role,
                          [](const Bundle& b, const std::string& name) { return b.role < name; });
}

bool SameNames(const ParamType& a, const ParamType& b) {
  return std::equal(a.axes.begin(), a.axes.end(), b.axes.begin(), b.axes.end(),
                    [](const ParamAxis& x, const ParamAxis& y) { return x.name == y.name; });
}

}  // namespace

Rewriter::Rewriter(Graph& graph, std::string step) : graph_(graph), step_(std::move(step)) {}

void Rewriter::Touch(NodeId node) {
  TWIN_CHECK(node >= 0 && static_cast<size_t>(node) < graph_.nodes_.size(), "no such node");
  changed_ = true;
  graph_.nodes_[node].step = step_;
  if (first_touched_ < 0 || node < first_touched_) first_touched_ = node;
}

NodeId Rewriter::OwnerOf(const std::string& role) const {
  auto at = graph_.by_path_.find(role);
  if (at != graph_.by_path_.end()) {
    for (const auto& [slot, held] : graph_.nodes_[at->second].params) {
      if (held == role) return at->second;
    }
  }
  const size_t dot = role.rfind('.');
  TWIN_CHECK(dot != std::string::npos, absl::StrCat("no parameter ", role));
  at = graph_.by_path_.find(absl::string_view(role).substr(0, dot));
  TWIN_CHECK(at != graph_.by_path_.end(), absl::StrCat("no parameter ", role));
  return at->second;
}

void Rewriter::SetAttrs(NodeId node, OpAttrs attrs) {
  Touch(node);
  graph_.nodes_[node].attrs = std::make_shared<const OpAttrs>(std::move(attrs));
}

void Rewriter::SetParam(const std::string& role, ParamType type, WeightPtr program) {
  auto at = graph_.params_.find(role);
  TWIN_CHECK(at != graph_.params_.end(), absl::StrCat("no parameter ", role));
  TWIN_CHECK(program->shape() == type.shape() && program->dtype() == type.dtype,
             absl::StrCat(role, ": program and type disagree"));
  Touch(OwnerOf(role));
  if (!SameNames(at->second.type, type)) at->second.laid_by = step_;
  at->second.type = std::move(type);
  program_changes_.push_back({role, at->second.program});
  at->second.program = std::move(program);
}

void Rewriter::AddParam(NodeId node, const std::string& slot, ParamType type, WeightPtr program,
                        Storage storage) {
  Touch(node);
  Node& owner = graph_.nodes_[node];
  TWIN_CHECK(!owner.Has(slot), absl::StrCat(owner.path, ": slot ", slot, " is taken"));
  TWIN_CHECK(program->shape() == type.shape() && program->dtype() == type.dtype,
             absl::StrCat(owner.path, ".", slot, ": program and type disagree"));
  Param param{RoleOf(owner.op, owner.path, slot), std::move(type), std::move(program), storage, step_};
  if (!param.type.is_kernel()) param.storage.orientation = Orientation::kOutIn;
  std::vector<std::pair<std::string, std::string>> params;
  for (const SlotInfo& info : Info(owner.op).slots) {
    if (info.name == slot) params.emplace_back(slot, param.role);
    if (owner.Has(info.name)) params.emplace_back(std::string(info.name), std::string(owner.Role(info.name)));
  }
  owner.params = std::move(params);
  const std::string role = param.role;
  program_changes_.push_back({role, nullptr});
  TWIN_CHECK(graph_.params_.emplace(role, std::move(param)).second, "the role is taken");
}

void Rewriter::RemoveParam(NodeId node, const std::string& slot) {
  Touch(node);
  Node& owner = graph_.nodes_[node];
  TWIN_CHECK(owner.Has(slot), absl::StrCat(owner.path, ": slot ", slot, " is empty"));
  const std::string role(owner.Role(slot));
  TWIN_CHECK(graph_.BundleOf(role) == nullptr, absl::StrCat(role, " lies in a bundle"));
  TWIN_CHECK(graph_.StackOf(role) == nullptr, absl::StrCat(role, " lies in a stack"));
  graph_.params_.erase(role);
  owner.params.erase(std::find_if(owner.params.begin(), owner.params.end(),
                                  [&](const auto& entry) { return entry.first == slot; }));
}

void Rewriter::SetStorage(const std::string& role, Storage storage) {
  auto at = graph_.params_.find(role);
  TWIN_CHECK(at != graph_.params_.end(), absl::StrCat("no parameter ", role));
  if (!at->second.type.is_kernel()) storage.orientation = Orientation::kOutIn;
  if (at->second.storage == storage) return;
  Touch(OwnerOf(role));
  at->second.storage = storage;
  at->second.laid_by = step_;
}

void Rewriter::AddBundle(Bundle bundle) {
  bundle.laid_by = step_;
  for (const std::string& member : bundle.members) {
    TWIN_CHECK(graph_.params_.contains(member), absl::StrCat("no parameter ", member));
    TWIN_CHECK(graph_.StackOf(member) == nullptr, absl::StrCat(member, " lies in a stack"));
    TWIN_CHECK(graph_.bundle_of_.emplace(member, bundle.role).second,
               absl::StrCat(member, " lies in a bundle already"));
    Touch(OwnerOf(member));
  }
  graph_.bundles_.insert(BundleAt(graph_.bundles_, bundle.role), std::move(bundle));
}

void Rewriter::RemoveBundle(const std::string& role) {
  auto at = BundleAt(graph_.bundles_, role);
  TWIN_CHECK(at != graph_.bundles_.end() && at->role == role, absl::StrCat("no bundle ", role));
  TWIN_CHECK(graph_.StackOf(role) == nullptr, absl::StrCat(role, " lies in a stack"));
  for (const std::string& member : at->members) {
    graph_.bundle_of_.erase(member);
    Touch(OwnerOf(member));
  }
  graph_.bundles_.erase(at);
}

void Rewriter::AddStack(LayerStack stack) {
  stack.laid_by = step_;
  for (const std::string& member : stack.members) {
    TWIN_CHECK(graph_.stack_of_.emplace(member, stack.role).second,
               absl::StrCat(member, " lies in a stack already"));
    const auto bundle = BundleAt(graph_.bundles_, member);
    if (bundle == graph_.bundles_.end() || bundle->role != member) {
      Touch(OwnerOf(member));
      continue;
    }
    for (const std::string& role : bundle->members) Touch(OwnerOf(role));
  }
  const auto at =
      std::lower_bound(graph_.stacks_.begin(), graph_.stacks_.end(), stack.role,
                       [](const LayerStack& s, const std::string& name) { return s.role < name; });
  graph_.stacks_.insert(at, std::move(stack));
}

void Rewriter::SetInputType(NodeId node, Type type) {
  Touch(node);
  TWIN_CHECK(graph_.nodes_[node].op == OpKind::kInput, "only an input's type is its own");
  graph_.nodes_[node].type = std::move(type);
}

void Rewriter::Replace(NodeId node, Emit emit, std::shared_ptr<const Origin> origin) {
  TWIN_CHECK(node >= 0 && static_cast<size_t>(node) < graph_.nodes_.size(), "no such node");
  TWIN_CHECK(replaced_.emplace(node, Replacement{std::move(emit), std::move(origin)}).second,
             absl::StrCat(graph_.nodes_[node].path, " is replaced twice"));
  changed_ = true;
}

void Rewriter::Remove(NodeId node) { Replace(node, nullptr); }

void Rewriter::Announce(std::string role, WeightPtr before, WeightPtr program) {
  program_changes_.push_back({std::move(role), std::move(before), std::move(program)});
}

NodeId Rewriter::Copy(const Node& node, Moved moved, Builder& to) const {
  if (node.op == OpKind::kInput) return to.Input(node.path, node.type);
  std::vector<NodeId> operands;
  for (NodeId operand : node.operands) operands.push_back(moved(operand));
  std::vector<std::pair<std::string, Param>> params;
  for (const auto& [slot, role] : node.params) params.emplace_back(slot, graph_.params_.at(role));
  const NodeId id = to.Op(node.op, node.path, std::move(operands), *node.attrs, std::move(params));
  if (id >= 0) to.SetStep(id, node.step);
  return id;
}

absl::Status Rewriter::Rebuild() {
  if (replaced_.empty()) return absl::OkStatus();
  Builder to(graph_.name_);
  std::vector<NodeId> become(graph_.nodes_.size(), -1);
  const auto moved = [&](NodeId id) { return become[id]; };
  for (const Node& node : graph_.nodes_) {
    const auto at = replaced_.find(node.id);
    if (at == replaced_.end()) {
      become[node.id] = Copy(node, moved, to);
      continue;
    }
    if (at->second.emit == nullptr) continue;
    const size_t first = to.graph_.nodes_.size();
    TWIN_ASSIGN_OR_RETURN(const NodeId value, at->second.emit(moved, to));
    TWIN_RETURN_IF_ERROR(to.status());
    become[node.id] = value;
    for (size_t i = first; i < to.graph_.nodes_.size(); ++i) to.graph_.nodes_[i].step = step_;
    if (at->second.origin == nullptr || static_cast<size_t>(value) < first) continue;
    OpAttrs attrs = *to.graph_.nodes_[value].attrs;
    *attrs.mutable_origin() = *at->second.origin;
    to.graph_.nodes_[value].attrs = std::make_shared<const OpAttrs>(std::move(attrs));
  }
  for (const auto& [name, value] : graph_.outputs_) to.Output(name, become[value]);
  for (const Bundle& bundle : graph_.bundles_) to.AddBundle(bundle);
  for (const LayerStack& stack : graph_.stacks_) to.AddStack(stack);
  TWIN_RETURN_IF_ERROR(to.status());
  graph_ = std::move(to.graph_);
  replaced_.clear();
  first_touched_ = -1;
  return absl::OkStatus();
}

// A type that can't be inferred stays as it was: Verify, which follows, says what is wrong.
void Rewriter::InferTypes() {
  if (first_touched_ < 0) return;
  for (size_t i = first_touched_; i < graph_.nodes_.size(); ++i) {
    if (graph_.nodes_[i].op == OpKind::kInput) continue;
    absl::StatusOr<Type> type = InferType(graph_, graph_.nodes_[i]);
    if (type.ok()) graph_.nodes_[i].type = *std::move(type);
  }
}

}  // namespace twinforge
