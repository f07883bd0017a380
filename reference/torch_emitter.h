// Writes a graph as one PyTorch module.
//
// A node with parameters is a class whose attributes are its slots; a layer is a class of such blocks; the
// model is embedding, layers, head. What a block does follows its decomposition in ir/ops;
// docs/emitted-code.md is the style. A text depends on the graph alone, so the same graph gives the same
// bytes.
#ifndef TWINFORGE_REFERENCE_TORCH_EMITTER_H_
#define TWINFORGE_REFERENCE_TORCH_EMITTER_H_

#include <string>
#include <vector>

#include "reference/config_fields.h"
#include "reference/functions.h"
#include "reference/program.h"

namespace twinforge {

class TorchEmitter {
 public:
  explicit TorchEmitter(const ReferenceProgram& program);
  std::string Module();

 private:
  // ---- torch_emitter.cc: what all blocks share
  const Graph& graph() const { return *program_.graph; }
  const ParamType& TypeOf(const Node& node, absl::string_view slot) const;
  std::string Widen();
  std::string WideDot();
  std::string Dot();
  std::string TopK();
  // dot("bsd,nhd->bsnh", x, self.q, self.q_bias): the bias where the node has one.
  std::string Project(const Node& node, absl::string_view x, absl::string_view slot,
                      absl::string_view bias = "", absl::string_view rows = "bs");
  std::string SoftCap(std::string x, double cap, absl::string_view name);
  // Defines a class of blocks: `name`(Block), whose forward takes `arguments` and does `body`.
  std::string Block(absl::string_view name, absl::string_view arguments, absl::string_view body,
                    absl::string_view meaning = "");

  // ---- torch_blocks.cc: each gives the class of a node
  struct Rms {
    absl::string_view slot, eps_name;
    double eps = 0, offset = 0;
    int64_t width = 0;
  };
  // A call of the function that normalises x.
  std::string RmsCall(const Node& node, const Rms& norm, absl::string_view x);
  std::string RmsNorm(const Node& node);
  std::string LayerNorm(const Node& node);
  std::string Activate(Activation act);
  // What a gated block does before `down`, of values called gate and up.
  std::string Gate(const MlpAttrs& attrs);
  std::string Linear(const Node& node);
  std::string GatedMlp(const Node& node);
  std::string Mlp(const Node& node);
  std::string Embedding(const Node& node);
  std::string LmHead(const Node& node);

  // ---- torch_attention.cc
  std::string Attention(const Node& node);
  std::string LatentAttention(const Node& node);
  // What a forward takes beside x: "cache, i, at, window=None".
  std::string Arguments() const;
  std::string Visible();
  std::string Remember();
  std::string Weights(const Node& node, const AttentionAttrs& attrs);

  // ---- torch_rope.cc
  // The field of Step with this rope's angles: "at.angles".
  std::string Angles(const Rope& rope);
  std::string Rotate(const Rope& rope);
  std::string FrequencyLines(const Rope& rope);

  // ---- torch_mixture.cc
  std::string Moe(const Node& node);
  std::string Route(const Node& node);

  // ---- torch_module.cc: nodes in order, and what runs them
  std::string ClassOf(const Node& node);
  std::string CallOf(const Node& node, absl::string_view x);
  // Statements, and the value of the last node.
  struct Statements {
    std::string text, value;
  };
  Statements Body(const std::vector<NodeId>& nodes, NodeId enters);
  // Assignments self.attn = Attention(q=..., ...) of a constructor.
  std::string Parts(const std::vector<NodeId>& nodes);
  // What a parameter is made of: an expression of what is stored, or the parameter that holds it already.
  std::string ValueOf(const Node& node, const std::string& role) const;
  void Layers();
  std::string Stack() const;
  std::string Step();
  void Model();
  std::string Cache();

  const ReferenceProgram& program_;
  ConfigFields config_;
  FunctionSet functions_;
  std::vector<std::string> ropes_;  // serialised, in order of their angles' fields
  std::vector<std::string> rope_functions_;
  std::vector<std::string> layer_names_;  // by kind
  bool windows_ = false, chunks_ = false;
};

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_TORCH_EMITTER_H_
