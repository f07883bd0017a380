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
//   windows                     a layer's cache keeps its window, no more
//   experts                     Workload::routing
#ifndef TWINFORGE_COST_COUNTS_H_
#define TWINFORGE_COST_COUNTS_H_

#include <cstdint>
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
// all-gather) or after (all-reduce) the exchange.
struct Collective {
  enum class Kind : uint8_t { kAllReduce, kAllGather, kAllToAll };
  Kind kind = Kind::kAllReduce;
  Exact bytes;
  int64_t devices = 1;
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
  std::vector<Collective> collectives;
  Exact rows_read;                   // bytes gathered from tables, one device
  Exact cache_written;               // bytes, one device
  Exact result_bytes;                // of one device
  std::vector<Exact> operand_bytes;  // one for each operand, of one device
  std::string note;
};

struct NodeUse {
  int32_t kind = 0;    // which NodeCount
  uint64_t keeps = 0;  // bit i: no earlier node has the bytes of this node's i-th parameter
};

struct StepCount {
  std::vector<NodeCount> kinds;
  std::vector<NodeUse> nodes;  // one for each node of the graph, in order

  const NodeCount& KindOf(NodeId node) const { return kinds[nodes[node].kind]; }
};

// Query-key pairs of one sequence: `fresh` queries after `past` cached places, each seeing itself and what
// came before, at most `window` places (0: all).  past * fresh + fresh (fresh + 1) / 2 without a window.
Exact CausalPairs(int64_t past, int64_t fresh, int64_t window);

absl::StatusOr<StepCount> CountStep(const Graph& graph, const Workload& workload);

}  // namespace twinforge

#endif  // TWINFORGE_COST_COUNTS_H_
