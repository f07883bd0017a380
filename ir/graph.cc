#include "ir/graph.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "weights/build.h"

namespace twinforge {
namespace {

// Calls `visit` once for each distinct stored value: parameters whose programs are equal,
// or each other's transpose, are one.
template <typename Visit>
void ForEachDistinct(const Graph& graph, Visit visit) {
  absl::flat_hash_set<const Weight*> seen;
  for (const auto& [role, param] : graph.params()) {
    if (seen.contains(param.program.get())) continue;
    if (param.type.is_kernel() && param.type.axes.size() == 2) {
      const WeightPtr turned = Transpose(param.program, {1, 0});
      if (seen.contains(turned.get())) continue;
    }
    seen.insert(param.program.get());
    visit(param);
  }
}

}  // namespace

absl::string_view Node::Role(absl::string_view slot) const {
  for (const auto& [name, role] : params) {
    if (name == slot) return role;
  }
  return "";
}

const Node& Graph::node(NodeId id) const {
  TWIN_CHECK(id >= 0 && static_cast<size_t>(id) < nodes_.size(), "no such node");
  return nodes_[id];
}

const Node* Graph::FindNode(absl::string_view path) const {
  auto at = by_path_.find(path);
  return at == by_path_.end() ? nullptr : &nodes_[at->second];
}

const Param* Graph::FindParam(absl::string_view role) const {
  auto at = params_.find(std::string(role));
  return at == params_.end() ? nullptr : &at->second;
}

const Param& Graph::param(const Node& node, absl::string_view slot) const {
  const Param* found = FindParam(node.Role(slot));
  TWIN_CHECK(found != nullptr, "the node has no parameter in this slot");
  return *found;
}

const Bundle* Graph::BundleOf(absl::string_view role) const {
  auto at = bundle_of_.find(role);
  if (at == bundle_of_.end()) return nullptr;
  auto bundle = std::lower_bound(bundles_.begin(), bundles_.end(), at->second,
                                 [](const Bundle& b, const std::string& name) { return b.role < name; });
  return &*bundle;
}

const LayerStack* Graph::StackOf(absl::string_view role) const {
  auto at = stack_of_.find(role);
  if (at == stack_of_.end()) return nullptr;
  auto stack = std::lower_bound(stacks_.begin(), stacks_.end(), at->second,
                                [](const LayerStack& s, const std::string& name) { return s.role < name; });
  return &*stack;
}

const std::vector<NodeId>& Graph::UsersOf(NodeId id) const {
  TWIN_CHECK(id >= 0 && static_cast<size_t>(id) < users_.size(), "no such node");
  return users_[id];
}

int64_t StoredElements(const Graph& graph) {
  int64_t sum = 0;
  ForEachDistinct(graph, [&](const Param& param) { sum += param.program->element_count(); });
  return sum;
}

int64_t LogicalElements(const Graph& graph) {
  int64_t sum = 0;
  ForEachDistinct(graph, [&](const Param& param) {
    int64_t product = 1;
    for (const ParamAxis& axis : param.type.axes) product *= axis.logical;
    sum += product;
  });
  return sum;
}

}  // namespace twinforge
