// How one node is counted: the class behind CountNode(), internal to cost/.
#ifndef TWINFORGE_COST_NODE_COUNTER_H_
#define TWINFORGE_COST_NODE_COUNTER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cost/count_node.h"

namespace twinforge {

// A parameter's extents on one device, in and out axes multiplied out, and the logical ones of the whole.
struct Extents {
  int64_t lead = 1;
  int64_t in = 1;
  int64_t out = 1;
  Exact logical_in = 1;
  Exact logical_out = 1;
};

class NodeCounter {
 public:
  NodeCounter(const Step& step, const Node& node, absl::Span<const Param* const> params, NodeCount& out)
      : step_(step), node_(node), params_(params), out_(out) {}

  absl::Status Run();

 private:
  absl::Status Read(absl::string_view slot, int64_t lead);
  absl::Status Multiply(absl::string_view slot, int64_t rows, Exact all_rows);
  void Store(const ParamType& type, absl::string_view slot, const Extents& extents, int64_t lead,
             std::vector<StoredArray>& into) const;
  absl::Status StoreAll();
  absl::Status Dense(absl::string_view slot, int64_t rows, Exact all_rows);
  absl::Status DenseRows(absl::string_view slot) { return Dense(slot, step_.rows, step_.all_rows); }
  void AllReduce();
  absl::Status Linear();
  absl::Status Embedding();
  absl::Status CheckPositions() const;
  absl::Status Attention();
  absl::Status LatentAttention();
  absl::Status Absorbed(const StepPart& part, int64_t heads);
  absl::Status Expanded(const StepPart& part, int64_t heads);
  absl::Status Mlp(const std::vector<absl::string_view>& slots);
  absl::Status Moe();
  absl::Status Expert(absl::string_view slot, Exact assigned, int64_t distinct);
  void Dispatch(int64_t choices);
  absl::Status ShortConv();
  absl::Status StateSpace();
  absl::Status DeltaRule();
  absl::Status Head();
  absl::Status Result();

  // Devices that share an axis of a parameter, experts' parameters being shared otherwise.
  int64_t DevicesOf(const ParamAxis& axis, bool of_experts) const;
  absl::StatusOr<int64_t> LocalSize(const ParamAxis& axis, bool of_experts = false) const;
  // What would make an axis divide over so many devices: something that can be done as it is said.
  std::string RemedyFor(const ParamAxis& axis, int64_t devices) const;
  bool AllCanBePadded() const;
  int64_t ShardsThatDivide() const;
  absl::StatusOr<Extents> ExtentsOf(const ParamType& type) const;
  const ParamType& TypeOf(absl::string_view slot) const;
  int64_t Logical(absl::string_view slot, absl::string_view axis) const {
    return TypeOf(slot).Get(axis).logical;
  }
  DType OperandType() const { return step_.graph.node(node_.operands[0]).type.dtype; }
  // Whether the workload's precision says how this parameter is stored.
  bool IsRecoded(const ParamType& type, absl::string_view slot) const;
  DType KernelType(const ParamType& type, absl::string_view slot) const;  // as the matrix unit gets it
  DType ActivationType(const ParamType& type, absl::string_view slot) const;

  // The products of attention proper, of `groups` independent key sets each shared by `queries` heads.
  struct Heads {
    int64_t groups = 1;
    int64_t queries = 1;
    int64_t score_width = 1;
    int64_t value_width = 1;
    Exact useful_scores;  // multiply-adds of one pair over all heads, at logical sizes
    Exact useful_values;
  };
  void Scores(const Heads& heads, const StepPart& part, Exact pairs, int64_t keys);

  // Caches of `arrays` rows alike (keys and values, or one latent) at each place.
  struct CacheRows {
    std::vector<int64_t> extents;  // of a row
    int64_t arrays = 1;
    int64_t window = 0;  // 0: none
    int64_t chunk = 0;
  };
  void Cache(const CacheRows& rows, const StepPart& part);
  // What devices of `sp` tell each other: rows of `bytes_of_place` bytes where they share the queries,
  // partial results of heads x width where they share the keys.
  void ExchangeParts(const StepPart& part, Exact bytes_of_place, int64_t window, int64_t heads,
                     int64_t width);

  // A recurrence of `heads` memories, [value, key] each, whose keys neighbours share in `groups`; `passes`
  // products a place with the memory, or with each pair where that is less.
  struct Recurrence {
    int64_t heads = 1, groups = 1, value = 1, key = 1;  // of one device
    Exact all_heads, all_groups, all_value, all_key;    // logical, of all
    int64_t passes = 1;
  };
  void Recur(const Recurrence& recurrence);
  absl::Status Taps(absl::string_view slot);
  absl::Status CheckRecurs() const;

  // Sum over the step's parts of an array's elements, in rows of one device or of all.
  absl::StatusOr<Exact> Elements(absl::Span<const Axis> axes, bool all) const;
  // Slices over which the devices of tp, or of a whole stage, are spread.
  int64_t SlicesOfShards() const { return step_.workload.dcn.tp ? step_.workload.shards : 1; }
  int64_t SlicesOfStage() const;

  const Step& step_;
  const Node& node_;
  const absl::Span<const Param* const> params_;
  NodeCount& out_;
};

// A parameter's array on one device, with `lead` of its stack.
StoredArray ArrayOf(const ParamType& type, const Extents& extents, int64_t lead);

}  // namespace twinforge

#endif  // TWINFORGE_COST_NODE_COUNTER_H_
