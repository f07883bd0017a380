// The only way to change a finished graph. Stamps what it touches with the step's name,
// so provenance is a fact and not a discipline.
#ifndef TWINFORGE_IR_REWRITER_H_
#define TWINFORGE_IR_REWRITER_H_

#include <string>
#include <vector>

#include "ir/graph.h"

namespace twinforge {

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

  // Whether anything was changed since construction.
  bool changed() const { return changed_; }
  // Every parameter whose program was set, and what it was before: nullptr for one that was added.
  struct ProgramChange {
    std::string role;
    WeightPtr before;
  };
  const std::vector<ProgramChange>& program_changes() const { return program_changes_; }

 private:
  void Touch(NodeId node);
  NodeId OwnerOf(const std::string& role) const;
  Graph& graph_;
  std::string step_;
  bool changed_ = false;
  std::vector<ProgramChange> program_changes_;
  NodeId first_touched_ = -1;
};

}  // namespace twinforge

#endif  // TWINFORGE_IR_REWRITER_H_
