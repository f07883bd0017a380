// A composite's meaning, written out as smaller ops: what the evaluator runs and what lowering emits.
//
//   layers.0.attn = attention(x) q=@.. k=@.. v=@.. o=@.. {..}
//     becomes  layers.0.attn.q = param() @layers.0.attn.q
//              layers.0.attn.dot_0 = dot(x, layers.0.attn.q) {lhs_contract: 2 rhs_contract: 0}
//              ...
//
// Parameters stay parameters, under the same roles, each as a `param` node. Sizes may be symbols throughout.
// Values that a block carries from call to call (keys and values, a recurrence's state) are operands and
// results of the decomposition: with them the tokens continue what was seen, without them they stand alone.
#ifndef TWINFORGE_IR_DECOMPOSE_H_
#define TWINFORGE_IR_DECOMPOSE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/builder.h"
#include "ir/graph.h"

namespace twinforge {

// One value that a node carries from call to call. What grows has the symbol `past` in its type; the rest has
// a fixed extent and is all 0 at first.
struct StateSlot {
  std::string name;  // "k"; "layers.0.attn.k" in an evaluation's state
  Type type;         // before the call: [batch, past, kv_heads, head_dim]
};

// Empty for most ops. REQUIRES: the node is verified.
std::vector<StateSlot> StateOf(const Graph& graph, const Node& node);

// Operands of a decomposition, as values of the graph that it is emitted into.
struct DecompositionInputs {
  std::vector<NodeId> operands;  // of the node's operands' types
  std::vector<NodeId> state;     // one per slot of StateOf; empty: the tokens stand alone
  NodeId positions = -1;         // i32 [batch, seq]; -1: 0, 1, 2, ...; REQUIRES: given where `state` is
  NodeId token_types = -1;       // i32 [batch, seq]; -1: all 0
  // i32 [batch]: the place, counted with what the state holds, of each sequence's first token. What stands before
  // is padding, which no token sees. -1: there is none.
  NodeId starts = -1;
};

struct Decomposition {
  NodeId result = -1;         // of the node's type
  std::vector<NodeId> state;  // after the call, one per slot, where the state was given
};

enum class DecompositionDepth {
  kOnce,        // smaller composites may stand in it (rope, router)
  kPrimitives,  // nothing but primitives
};

// Emits the decomposition of `node`, a composite of `from`, into `to`; new paths begin with the node's own.
// TF1501 where the node's operands have no meaning for it (attention over a value without a sequence).
absl::StatusOr<Decomposition> EmitDecomposition(const Graph& from, const Node& node,
                                                const DecompositionInputs& inputs, DecompositionDepth depth,
                                                Builder& to);

// The same as a graph of its own. Inputs: operand_0, ...; the state's slots, if any; positions; token_types.
// Outputs: result, then new_<slot>. Positions are an input only where operand 0 has two axes or more.
absl::StatusOr<Graph> DecompositionOf(const Graph& from, const Node& node, DecompositionDepth depth,
                                      bool with_state);

}  // namespace twinforge

#endif  // TWINFORGE_IR_DECOMPOSE_H_
