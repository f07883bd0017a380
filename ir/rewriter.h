// The only way to change a finished graph. Stamps what it touches with the step's name,
// so provenance is a fact and not a discipline.
#ifndef TWINFORGE_IR_REWRITER_H_
#define TWINFORGE_IR_REWRITER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "ir/graph.h"

namespace twinforge {

class Builder;

class Rewriter {
 public:
  // `graph` outlives the rewriter. `step` names the recipe step: "2 pad_vocab".
  Rewriter(Graph& graph, std::string step);

  const Graph& graph() const { return graph_; }

  void SetAttrs(NodeId node, OpAttrs attrs);
  // Replaces type and program together. REQUIRES: role exists; shapes and dtypes agree.
  void SetParam(const std::string& role, ParamType type, WeightPtr program);
  // Adds a parameter in an empty slot of a node. REQUIRES: the slot exists and is empty.
  void AddParam(NodeId node, const std::string& slot, ParamType type, WeightPtr program, Storage storage);
  // Empties a slot; the parameter goes with it.
  void RemoveParam(NodeId node, const std::string& slot);
  void SetStorage(const std::string& role, Storage storage);
  // REQUIRES: members exist and are in no other bundle.
  void AddBundle(Bundle bundle);
  void RemoveBundle(const std::string& role);
  // REQUIRES: members are parameters or bundles that are stored tensors of their own, and in no stack.
  void AddStack(LayerStack stack);
  // REQUIRES: `node` is an input.
  void SetInputType(NodeId node, Type type);
  // Re-infers result types from the first changed node on; called by the driver at the end of a step.
  void InferTypes();

  // ---- nodes that come and go: all at once, in Rebuild(). Until then every id and path is what it was.
  // What an earlier node of the graph has become in the new one.
  using Moved = absl::FunctionRef<NodeId(NodeId)>;
  // Appends what stands in a node's place and returns the value that its users read from then on.
  using Emit = std::function<absl::StatusOr<NodeId>(Moved moved, Builder& to)>;
  // The node goes, with those of its parameters that `emit` does not append again. What `emit` returns bears
  // `origin`, where one is given. REQUIRES: what `emit` looks at lives until Rebuild(); graph() does.
  void Replace(NodeId node, Emit emit, std::shared_ptr<const Origin> origin = nullptr);
  // REQUIRES: all that uses the node is removed or replaced as well, and it is no output.
  void Remove(NodeId node);
  // Says of a parameter that an `emit` will append what its program will be, and what it was before.
  void Announce(std::string role, WeightPtr before, WeightPtr program);
  // Carries out what was asked for; called by the driver before InferTypes(). TF1501 where what was emitted
  // does not fit; the graph is then as it was.
  absl::Status Rebuild();

  // Whether anything was changed since construction.
  bool changed() const { return changed_; }
  // Every parameter whose program was set, and what it was before: nullptr for one that was added. Of one
  // that Rebuild() will append, what it will be.
  struct ProgramChange {
    std::string role;
    WeightPtr before;
    WeightPtr announced = nullptr;
  };
  const std::vector<ProgramChange>& program_changes() const { return program_changes_; }

 private:
  void Touch(NodeId node);
  NodeId OwnerOf(const std::string& role) const;
  NodeId Copy(const Node& node, Moved moved, Builder& to) const;
  Graph& graph_;
  std::string step_;
  bool changed_ = false;
  std::vector<ProgramChange> program_changes_;
  NodeId first_touched_ = -1;
  struct Replacement {
    Emit emit;  // null: nothing stands in its place
    std::shared_ptr<const Origin> origin;
  };
  std::map<NodeId, Replacement> replaced_;
};

}  // namespace twinforge

#endif  // TWINFORGE_IR_REWRITER_H_
