// A model is a small graph: nodes in order, parameters by role, storage beside them.
//
//   node    op, operands, attributes, path ("layers.3.attn"), result type, step of origin
//   param   role ("layers.3.attn.q"), type, weight program, storage
//
// Nodes are a topological list; ids only grow. Two parameters may share one weight
// program (a tied head: its program is the embedding's, transposed), and stay tied
// without any rule. Nothing here depends on where a model came from or goes.
//
// A Graph is a value: copying is cheap enough to snapshot (programs are shared), and it changes only through
// Builder (append) and Rewriter (change).
#ifndef TWINFORGE_IR_GRAPH_H_
#define TWINFORGE_IR_GRAPH_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "ir/op.h"
#include "ir/ops.pb.h"
#include "ir/storage.h"
#include "ir/type.h"
#include "weights/weight.h"

namespace twinforge {

using NodeId = int32_t;

// Every op has one result in this first form, so a value is its node.
struct Param {
  std::string role;
  ParamType type;
  WeightPtr program;  // shape() == type.shape(), dtype() == type.dtype
  Storage storage;
  std::string laid_by;  // the step that last changed its storage or the names of its axes, "" = import
};

struct Node {
  NodeId id = -1;
  OpKind op = OpKind::kInput;
  std::string path;  // unique in the graph: "layers.3.attn"
  std::vector<NodeId> operands;
  std::shared_ptr<const OpAttrs> attrs;                     // never null
  std::vector<std::pair<std::string, std::string>> params;  // slot -> role, in the slots' order
  Type type;                                                // of the result
  std::string step;  // recipe step that made or last changed it; "" = import

  // Role of the parameter in `slot`, or "".
  absl::string_view Role(absl::string_view slot) const;
  bool Has(absl::string_view slot) const { return !Role(slot).empty(); }
};

class Graph {
 public:
  const std::string& name() const { return name_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const Node& node(NodeId id) const;                   // REQUIRES: exists
  const Node* FindNode(absl::string_view path) const;  // nullptr if none
  const std::map<std::string, Param>& params() const { return params_; }
  const Param* FindParam(absl::string_view role) const;
  // The parameter in a node's slot. REQUIRES: node.Has(slot).
  const Param& param(const Node& node, absl::string_view slot) const;
  const std::vector<NodeId>& inputs() const { return inputs_; }
  // (name, value) in order: ("logits", 17).
  const std::vector<std::pair<std::string, NodeId>>& outputs() const { return outputs_; }
  const std::vector<Bundle>& bundles() const { return bundles_; }
  // The bundle that holds `role`, or nullptr.
  const Bundle* BundleOf(absl::string_view role) const;
  const std::vector<LayerStack>& stacks() const { return stacks_; }
  // The stack that holds the parameter or bundle `role`, or nullptr.
  const LayerStack* StackOf(absl::string_view role) const;
  // Nodes that use the result of `id`, ascending.
  const std::vector<NodeId>& UsersOf(NodeId id) const;

 private:
  friend class Builder;
  friend class Rewriter;
  std::string name_;
  std::vector<Node> nodes_;                 // node id == position
  std::vector<std::vector<NodeId>> users_;  // by node id
  std::map<std::string, Param> params_;
  std::vector<NodeId> inputs_;
  std::vector<std::pair<std::string, NodeId>> outputs_;
  std::vector<Bundle> bundles_;     // ascending by role
  std::vector<LayerStack> stacks_;  // ascending by role
  absl::flat_hash_map<std::string, NodeId> by_path_;
  absl::flat_hash_map<std::string, std::string> bundle_of_;  // member role -> bundle role
  absl::flat_hash_map<std::string, std::string> stack_of_;   // parameter or bundle -> stack role
};

// Unique elements of parameters: tied ones once, padding included.
int64_t StoredElements(const Graph& graph);
// The same at logical sizes: what the source model has. Equal to published parameter counts.
int64_t LogicalElements(const Graph& graph);

}  // namespace twinforge

#endif  // TWINFORGE_IR_GRAPH_H_
