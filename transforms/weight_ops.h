// One primitive on weights alone, as a weight program: the rules of absorb_weight_ops, op by op.
#ifndef TWINFORGE_TRANSFORMS_WEIGHT_OPS_H_
#define TWINFORGE_TRANSFORMS_WEIGHT_OPS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "transforms/transform.h"

namespace twinforge {

// What a parameter would be.
struct PlannedParam {
  ParamType type;
  WeightPtr program;
  Storage storage;
  Fidelity fidelity = Fidelity::kMoved;  // of all that led here, roundings aside
};

// Whether `node` is of a kind that can be absorbed and all that it reads are `weights`, or a constant beside
// one.
bool ReadsWeightsAlone(const Graph& graph, const Node& node, absl::Span<const NodeId> weights);

// The result of `node`, whose weights would be `operands`, in order. Nothing where its rule does not hold,
// and the reason. REQUIRES: ReadsWeightsAlone().
std::optional<PlannedParam> PlanWeightOp(const Graph& graph, const Node& node,
                                         absl::Span<const PlannedParam> operands, std::string& reason);

// Why `users`, all that read `weight`, do not read each of its places once; "" where they do: one that is no
// slice, or slices along one axis, side by side.
std::string WhyNoPartition(const Graph& graph, const Node& weight, absl::Span<const NodeId> users);

}  // namespace twinforge

#endif  // TWINFORGE_TRANSFORMS_WEIGHT_OPS_H_
