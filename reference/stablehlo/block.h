// A composite as a function of its module, written once for all nodes that are alike.
//
//   func.func private @attention_0(%x, %positions, %position, %k, %v, %qkv, %o) -> (result, cache, cache)
#ifndef TWINFORGE_REFERENCE_STABLEHLO_BLOCK_H_
#define TWINFORGE_REFERENCE_STABLEHLO_BLOCK_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/decompose.h"
#include "ir/graph.h"
#include "reference/stablehlo/mlir_body.h"
#include "reference/stablehlo/stablehlo.h"
#include "reference/stablehlo/weight_argument.h"

namespace twinforge {

// Sizes of one module. Symbols of the graph's types are bound so that past + seq is the cache's extent.
struct StableHloSizes {
  bool decode = false;
  int64_t batch = 1, sequence = 1, context = 1;

  // TF1620 at `place` where a symbol is none of batch, seq, past.
  absl::StatusOr<MlirType> Bind(const std::string& place, const Type& type) const;
};

// What a module gives its blocks.
enum class BlockInput {
  kOperand,     // operand `index` of the node
  kState,       // slot `index` of what it remembers
  kPositions,   // i32 [batch, seq]: where each token stands in its sequence
  kPosition,    // i32: the place of the cache that the first new token takes
  kStarts,      // i32 [batch]: the place of each sequence's first token
  kTokenTypes,  // i32 [batch, seq]
  kWeight,      // the unit that holds the parameter in slot `slot`
};

struct BlockArgument {
  BlockInput input = BlockInput::kOperand;
  size_t index = 0;
  std::string slot;
};

struct Block {
  std::string name;                      // "attention_0"
  std::vector<BlockArgument> arguments;  // those that it looks at
  std::vector<MlirType> results;         // the node's, then what it remembers
  std::string text;
};

// Whether the graph holds primitives beside its blocks, which take a whole sequence from its first token.
bool IsWrittenOut(const Graph& graph);
// Growing states are held in a buffer of `context` places; others are replaced.
bool Grows(const StateSlot& slot);
// Whether `node` takes a part in generation. A block that sees what comes after does not.
bool Remembers(const Graph& graph, const Node& node);
// Whether rows may begin with padding: blocks that carry a state over all places would take it in.
bool TakesPadding(const Graph& graph, const Node& node);

// The functions of one module.
class Blocks {
 public:
  // Both outlive it. `ragged`: functions take `starts`.
  Blocks(const Graph& graph, const WeightArguments& weights, const StableHloSizes& sizes, bool ragged)
      : graph_(graph), weights_(weights), sizes_(sizes), ragged_(ragged) {}

  // The function for `node`, a composite. TF1501, TF1620.
  absl::StatusOr<const Block*> Of(const Node& node);
  // All so far, in the order they were asked for.
  const std::vector<const Block*>& all() const { return all_; }

 private:
  std::string KeyOf(const Node& node) const;

  const Graph& graph_;
  const WeightArguments& weights_;
  const StableHloSizes sizes_;
  const bool ragged_;
  std::map<std::string, Block> blocks_;  // by what makes nodes alike
  std::map<std::string, int64_t> count_;  // by op
  std::vector<const Block*> all_;
};

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_STABLEHLO_BLOCK_H_
