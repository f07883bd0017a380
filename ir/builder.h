// Appends nodes and parameters; family code reads like mathematics.
//
//   Builder b("llama");
//   NodeId tokens = b.Input("tokens", {DType::kI32, {{"seq", Dim::Symbol("seq")}}});
//   NodeId x = b.Op(OpKind::kEmbedding, "embed", {tokens}, attrs, {{"table", std::move(param)}});
//   ...
//   b.Output("logits", x);
//   TWIN_ASSIGN_OR_RETURN(Graph g, b.Finish());
//
// Result types are inferred. The first error is kept and returned by Finish(), which
// also verifies; after an error further calls do nothing.
#ifndef TWINFORGE_IR_BUILDER_H_
#define TWINFORGE_IR_BUILDER_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/graph.h"

namespace twinforge {

class Builder {
 public:
  explicit Builder(std::string name);

  // Inputs come before all other nodes.
  NodeId Input(std::string name, Type type);
  // Params by slot; each Param's role is filled in from path and slot.
  NodeId Op(OpKind op, std::string path, std::vector<NodeId> operands, OpAttrs attrs,
            std::vector<std::pair<std::string, Param>> params);
  NodeId Add(std::string path, NodeId x, NodeId y);
  void Output(std::string name, NodeId value);
  void AddBundle(Bundle bundle);
  // The same for stored tensors of equal layers.
  void AddStack(LayerStack stack);

  // Of a value so far; of rank 0 where there is none.
  const Type& TypeOf(NodeId value) const;
  // The first error.
  const absl::Status& status() const { return status_; }

  absl::StatusOr<Graph> Finish();

 private:
  friend class GraphParser;
  friend class Rewriter;
  void SetStep(NodeId node, std::string step);

  Graph graph_;
  absl::Status status_;
};

// The role of a slot's parameter: "layers.0.attn.q", or the path itself for a main slot.
std::string RoleOf(OpKind op, absl::string_view path, absl::string_view slot);

}  // namespace twinforge

#endif  // TWINFORGE_IR_BUILDER_H_
