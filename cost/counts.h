// What one step of a graph computes, reads and keeps: exact, and without any chip.
//
// Each node becomes a list of matrix products and of arrays that it reads, as one device holds them. Which
// sizes a shard divides follows from the axes' names (heads, kv_heads, d_ff, shared_ff, vocab); kv_heads that
// are fewer than the shards are replicated, everything else is whole on every device.
//
// Conventions, each the least that any execution can do:
//   prefill of a causal model   logits of the last place of each sequence only
//   latent attention            decode absorbed: queries meet the latents, k_b and v_b act on queries and
//                               results; prefill expanded
//   windows, chunks             a layer's cache keeps what later places may see, no more
//   recurrences                 one read of the memory for each place, or pairs of places where that is less
//   experts                     Workload::routing
#ifndef TWINFORGE_COST_COUNTS_H_
#define TWINFORGE_COST_COUNTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cost/exact.h"
#include "cost/score.h"
#include "cost/shape.h"
#include "ir/graph.h"

namespace twinforge {

// A dense array on one device, as far as the step reads or the device keeps it.
struct StoredArray {
  DType dtype = DType::kBF16;
  std::vector<int64_t> shape;
};

// What devices exchange after a node. `bytes`: of one device's array, as it is before (all-to-all,
// all-gather) or after (all-reduce) the exchange; of a send, what goes to one neighbour.
struct Collective {
  enum class Kind : uint8_t { kAllReduce, kAllGather, kAllToAll, kSend };
  Kind kind = Kind::kAllReduce;
  Exact bytes;
  int64_t devices = 1;
  int64_t slices = 1;  // that they are spread over evenly; the data centre's network joins those
};

// What one node counts; nodes that are alike share one.
struct NodeCount {
  std::vector<Product> products;     // of one device
  std::vector<StoredArray> weights;  // that the step reads, of one device
  // All parameters of one device, one entry for each of node.params: the array, and its scales.
  std::vector<std::vector<StoredArray>> stored;
  // In training, what the optimiser reads and writes of each of them.
  std::vector<std::vector<StoredArray>> updated;
  std::vector<StoredArray> cache_read;  // of one device
  std::vector<StoredArray> cache_kept;  // of one device, after the step
  bool state = false;                   // the cache is a recurrence's memory: no larger for longer sequences
  std::vector<Collective> collectives;
  Exact rows_read;                   // bytes gathered from tables, one device
  Exact cache_written;               // bytes, one device
  Exact result_bytes;                // of one device
  std::vector<Exact> operand_bytes;  // one for each operand, of one device
  std::string note;
};

struct NodeUse {
  int32_t kind = 0;    // which NodeCount
  int32_t stage = 0;   // of the pipeline
  uint64_t keeps = 0;  // bit i: no earlier node of its stage has the bytes of this node's i-th parameter
};

struct StepCount {
  std::vector<NodeCount> kinds;
  std::vector<NodeUse> nodes;  // one for each node of the graph, in order

  const NodeCount& KindOf(NodeId node) const { return kinds[nodes[node].kind]; }
};

// Query-key pairs of one sequence: `fresh` queries after `past` cached places, each seeing itself and what
// came before, at most `window` places (0: all).  past * fresh + fresh (fresh + 1) / 2 without a window.
Exact CausalPairs(int64_t past, int64_t fresh, int64_t window);

// The same where a query also sees keys of its own chunk only (0: no chunks).
Exact ChunkedPairs(int64_t past, int64_t fresh, int64_t window, int64_t chunk);

// Counts of one microbatch. TF1702, TF1703 and TF1705 as ScoreGraph().
absl::StatusOr<StepCount> CountStep(const Graph& graph, const Workload& workload);

// The same, where `alike` counts a step of this graph on this mesh and in this phase, with other routing or
// padding: which nodes are alike is known from it, and each kind is counted once more.
absl::StatusOr<StepCount> RecountStep(const Graph& graph, const Workload& workload, const StepCount& alike);

// The layer that a node's path names: 3 of "layers.3.attn.q"; nullopt for what belongs to none.
std::optional<int64_t> LayerOfPath(absl::string_view path);

// The stage of a layer: layers are dealt evenly, earlier stages have one more where they do not divide.
int64_t StageOfLayer(int64_t layer, int64_t layers, int64_t stages);

}  // namespace twinforge

#endif  // TWINFORGE_COST_COUNTS_H_
