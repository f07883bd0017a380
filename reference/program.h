// A graph as code is written from it: what comes before, the layers, what comes after.
//
//   before   embed, embed_norm
//   layers   0 .. 27, each the nodes of one path "layers.N"; equal ones are of one kind
//   cycles   runs of layers that a loop can walk: [dense] once, then [windowed, full] 13 times
//   after    norm, lm_head
//
// What only later outputs of the graph need (the pooled token beside an encoder's hidden states) is left out.
// Two layers are of one kind when nothing but their number tells them apart: ops, attributes, the types of
// their parameters, and the way in which each is read from a file. Whatever language is emitted reads only
// this.
#ifndef TWINFORGE_REFERENCE_PROGRAM_H_
#define TWINFORGE_REFERENCE_PROGRAM_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/graph.h"
#include "reference/kept_groups.h"

namespace twinforge {

// A parameter in memory: the axes stand in the order in which the file has them, so that loading moves
// nothing.
struct HeldParam {
  const Param* param = nullptr;
  WeightPtr program;               // over stored tensors, of the held shape
  std::vector<int> order;          // held axis i is canonical axis order[i]
  std::string expression;          // of numpy; in a layer by its number i
  std::optional<KeptGroups> kept;  // of a kernel [in, out] that is read where it lies
};

struct LayerKind {
  std::string name;         // "layer", or "layer_0", after the first of its layers
  std::vector<int> layers;  // numbers, ascending
};

// `repeats` times the kinds `kinds`, from layer `first` on.
struct LayerCycle {
  int first = 0;
  std::vector<int> kinds;
  int repeats = 1;
};

struct ReferenceProgram {
  const Graph* graph = nullptr;
  std::vector<NodeId> before, after;        // without the graph's input
  std::vector<std::vector<NodeId>> layers;  // by number
  std::vector<LayerKind> kinds;
  std::vector<LayerCycle> cycles;
  std::map<std::string, HeldParam> held;  // by role
  bool decodes = false;                   // every attention is causal and remembers its keys
  bool headless = false;                  // the graph gives hidden states first: there is no head

  const HeldParam& Held(const Node& node, absl::string_view slot) const;  // REQUIRES: node.Has(slot)
  // "heads, head_dim (20 and padding), d_model", as the parameter is held.
  std::string AxesOf(const std::string& role) const;
  // How many words the model knows: rows of its embedding that are no padding. Without one, any number is a
  // word.
  int64_t Words() const;
  // How many positions a table of them has, or 0.
  int64_t Positions() const;
  // Whether a node of `nodes` after the one at `at` reads `value`.
  bool IsReadAfter(const std::vector<NodeId>& nodes, size_t at, NodeId value) const;
  // What comes after the number in a layer's path: "attn" of "layers.3.attn"; elsewhere the path itself.
  static absl::string_view Suffix(absl::string_view path);
  // The number of the layer that has `path`, or -1.
  static int64_t LayerOf(absl::string_view path);
};

// `programs`: for each role the program over stored tensors that yields its canonical parameter. A graph that
// no code is written for (primitives, values that jump over layers, a recurrence, weights computed where they
// are read) is absl::StatusCode::kUnimplemented with the reason in a sentence. The result points into
// `graph`.
absl::StatusOr<ReferenceProgram> MakeReferenceProgram(const Graph& graph,
                                                      const std::map<std::string, WeightPtr>& programs);

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_PROGRAM_H_
