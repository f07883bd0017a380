// Which devices hold which part of an argument: the graph's shards as Shardy says them.
//
//   sdy.mesh @mesh = <["model"=8]>
//   %layers.0.mlp.gate_up: tensor<28672x4096xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{"model"}, {}]>}
//
// Experts and all other axes are split over the same devices, "model", unless a parameter is split along both:
// then experts have an axis of their own, "expert". Results inside follow by propagation.
#ifndef TWINFORGE_REFERENCE_STABLEHLO_DEVICE_MESH_H_
#define TWINFORGE_REFERENCE_STABLEHLO_DEVICE_MESH_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/decompose.h"
#include "ir/graph.h"

namespace twinforge {

struct DeviceMesh {
  std::vector<std::pair<std::string, int64_t>> axes;  // name and size; empty: one device

  // The mesh's axis that splits an axis of a parameter, or "".
  std::string AxisFor(const ParamAxis& axis) const;
};

// TF1620 where axes are split into parts that no one mesh has.
absl::StatusOr<DeviceMesh> MeshOf(const Graph& graph);

// Of each axis of the stored tensor that holds `param` (without a stack's). An axis that is not the outermost
// of a merged extent cannot be split there, and is held whole.
std::vector<std::string> SplitOfStored(const DeviceMesh& mesh, const Graph& graph, const Param& param);
// Of each axis of a state: as the parameters of its node that have an axis of that name.
std::vector<std::string> SplitOfState(const DeviceMesh& mesh, const Graph& graph, const Node& node,
                                      const StateSlot& slot);

// "sdy.sharding = #sdy.sharding<@mesh, [{"model"}, {}]>"
std::string ShardingText(const std::vector<std::string>& split);

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_STABLEHLO_DEVICE_MESH_H_
