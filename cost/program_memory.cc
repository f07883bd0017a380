#include "cost/program_memory.h"

#include <map>
#include <string>

#include "absl/types/span.h"
#include "base/check.h"

namespace twinforge {
namespace {

// A stored tensor, or as many of the same as there are experts.
struct ProgramArray {
  StoredArray array;
  int64_t times = 1;
};

ProgramArray ArrayOfParam(const Param& param, const StoredArray& stored) {
  ProgramArray one{.array = stored};
  if (!param.storage.per_expert || stored.shape.size() < 2) return one;
  one.times = stored.shape[0];
  one.array.shape.erase(one.array.shape.begin());
  return one;
}

class Weights {
 public:
  explicit Weights(const Graph& graph) : graph_(graph) {}

  // Members of a bundle are joined along their out axes, the last.
  void Add(const Param& param, const StoredArray& stored) {
    const ProgramArray one = ArrayOfParam(param, stored);
    const Bundle* bundle = graph_.BundleOf(param.role);
    if (bundle == nullptr) {
      bytes_ += BytesOf(one);
      return;
    }
    const auto [known, fresh] = joined_.try_emplace(bundle->role, one);
    if (!fresh) known->second.array.shape.back() += one.array.shape.back();
  }

  Exact Sum() const {
    Exact sum = bytes_;
    for (const auto& [role, one] : joined_) sum += BytesOf(one);
    return sum;
  }

 private:
  static Exact BytesOf(const ProgramArray& one) {
    return PaddedBytes(one.array.dtype, one.array.shape) * one.times;
  }

  const Graph& graph_;
  Exact bytes_;
  std::map<std::string, ProgramArray> joined_;
};

// [batch, ..., places, last]; a recurrence's memory has no places.
Exact CacheBytes(const NodeCount& kind, int64_t places) {
  Exact bytes;
  for (StoredArray array : kind.cache_kept) {
    if (!kind.state) array.shape[array.shape.size() - 2] = places;
    bytes += PaddedBytes(array.dtype, array.shape);
  }
  return bytes;
}

}  // namespace

ProgramMemory MemoryOfProgram(const Graph& graph, const StepCount& count, int64_t places) {
  TWIN_CHECK(count.nodes.size() == graph.nodes().size(), "the counts are of another graph");
  ProgramMemory memory;
  Weights weights(graph);
  for (size_t i = 0; i < count.nodes.size(); ++i) {
    const NodeUse& use = count.nodes[i];
    const NodeCount& kind = count.kinds[static_cast<size_t>(use.kind)];
    for (size_t slot = 0; slot < kind.stored.size(); ++slot) {
      if ((use.keeps >> slot & 1) == 0) continue;
      const Param* param = graph.FindParam(graph.nodes()[i].params[slot].second);
      for (const StoredArray& array : kind.stored[slot]) weights.Add(*param, array);
    }
    memory.cache += CacheBytes(kind, places);
  }
  memory.weights = weights.Sum();
  return memory;
}

}  // namespace twinforge
