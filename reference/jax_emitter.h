// Writes a graph as one JAX module.
//
// Each method gives the expression of a call and sees to it that what is called is defined. What a block does
// follows its decomposition in ir/ops; docs/emitted-code.md is the style. A text depends on the graph alone,
// so the same graph gives the same bytes.
#ifndef TWINFORGE_REFERENCE_JAX_EMITTER_H_
#define TWINFORGE_REFERENCE_JAX_EMITTER_H_

#include <string>
#include <vector>

#include "reference/config_fields.h"
#include "reference/functions.h"
#include "reference/program.h"

namespace twinforge {

class JaxEmitter {
 public:
  explicit JaxEmitter(const ReferenceProgram& program);
  std::string Module();
  // After Module(): the kernels that it calls, "decode_attention".
  const std::vector<std::string>& kernels() const { return kernels_; }

 private:
  // ---- jax_emitter.cc: what all blocks share
  const Graph& graph() const { return *program_.graph; }
  const ParamType& TypeOf(const Node& node, absl::string_view slot) const;
  std::string Widen();
  std::string WideDot();
  std::string Dot();
  // The parameter in a node's slot, of which `p` is the node's own part.
  std::string Slot(const Node& node, absl::string_view slot, absl::string_view p = "p") const;
  // dot("bsd,nhd->bsnh", x, p["q"], p["q_bias"]): the bias where the node has one.
  std::string Project(const Node& node, absl::string_view x, absl::string_view slot,
                      absl::string_view bias = "", absl::string_view rows = "bs");
  std::string SoftCap(std::string x, double cap, absl::string_view name);

  // ---- jax_blocks.cc
  struct Rms {
    absl::string_view slot, eps_name;
    double eps = 0, offset = 0;
    int64_t width = 0;
  };
  std::string RmsNorm(const Node& node, const Rms& norm, absl::string_view x, absl::string_view scale);
  std::string LayerNorm(const Node& node, absl::string_view x, absl::string_view p);
  std::string Activate(Activation act);
  // What a gated block does before `down`, of values called gate and up.
  std::string Gate(const MlpAttrs& attrs);
  std::string GatedMlp(const Node& node);
  std::string Mlp(const Node& node);
  std::string Embedding(const Node& node);
  std::string LmHead(const Node& node);

  // ---- jax_attention.cc
  std::string Attention(const Node& node);
  std::string LatentAttention(const Node& node);
  std::string Signature() const;
  std::string Visible();
  std::string Remember();
  // Lines that leave attend() at once where a kernel computes one token of each sequence; `more` are its own
  // arguments.
  std::string AttendByKernel(absl::string_view cache, std::string more);
  std::string Weights(const Node& node, const AttentionAttrs& attrs);
  std::string Attend(const Node& node);
  std::string AttendLatents(const Node& node);
  std::string LatentWeights(const LatentAttentionAttrs& attrs, absl::string_view like);
  // The field of Step with this rope's angles: "at.angles".
  std::string Angles(const Rope& rope);
  std::string Rotate(const Rope& rope);

  // ---- jax_mixture.cc
  std::string Moe(const Node& node);
  std::string Route(const Node& node);
  std::string EveryExpert(const Node& node);

  // ---- jax_kernels.cc
  void UseKernel(std::string name);
  std::string KernelOptions();
  bool HasExpertKernel(const Node& node) const;
  // Whether the kernel for a weight of which few are kept takes this one, and reads it packed.
  bool IsPacked(const HeldParam& held) const;
  bool HasPacked() const;
  std::string PackedProduct(const Node& node, absl::string_view x, absl::string_view slot,
                            absl::string_view bias, const std::string& spec);
  std::string PackedLeaf(const HeldParam& held) const;
  // Whether a kernel reads parameters of the node, in the stack of layers where they are in one.
  bool ReadsStack(const Node& node) const;
  std::string ExpertProduct(const Node& node, absl::string_view x, absl::string_view slot) const;
  std::string ChosenExperts(const Node& node);
  std::string LayerOf(const std::vector<NodeId>& layer);

  // ---- jax_module.cc: nodes in order, and what runs them
  std::string CallOf(const Node& node, absl::string_view x, absl::string_view p);
  // Statements, and the value of the last node where no statement has given it to x.
  struct Statements {
    std::string text, value;
  };
  Statements Body(const std::vector<NodeId>& nodes, NodeId enters, absl::string_view tree);
  void Layers();
  std::string Walk(const LayerCycle& cycle, size_t part);
  bool HasKernel(const LayerCycle& cycle) const;
  std::string WalkByRow(const LayerCycle& cycle, size_t part);
  void Trunk();
  void Head();
  std::string Table() const;
  std::string Cache();

  // ---- jax_loader.cc: the tree of parameters, and what is read into it
  // Whether a node has but one parameter, which stands in the tree by itself.
  static bool IsLeaf(const Node& node);
  // The node's part of the tree, `own`, joined with parameters that stand elsewhere in it.
  std::string TreeOf(const Node& node, std::string own) const;
  // The role that holds the same stored tensor in the same way, earlier among the nodes outside layers; or
  // "".
  std::string TiedTo(const std::string& role) const;
  std::string LeafText(const std::string& role, bool layered) const;
  std::string SpecText(const std::string& role, bool stacked) const;
  // Nodes as the items of a dict; `leaf` writes a parameter.
  template <typename Leaf>
  std::string Items(const std::vector<NodeId>& nodes, int columns, bool comments, Leaf leaf) const;
  std::string Specs() const;
  std::string Loader();
  bool IsSharded() const;

  const ReferenceProgram& program_;
  ConfigFields config_;
  FunctionSet functions_;
  std::vector<std::string> ropes_;  // serialised, in order of their angles' fields
  std::vector<std::string> rope_functions_;
  std::vector<std::string> layer_names_;  // by kind
  std::vector<std::string> kernels_;      // in order of their first use
  bool windows_ = false, chunks_ = false;
};

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_JAX_EMITTER_H_
