#include "reference/stablehlo/device_mesh.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/diagnostic.h"
#include "reference/stablehlo/weight_argument.h"

namespace twinforge {
namespace {

bool IsExpert(const ParamAxis& axis) { return axis.name == "expert" || axis.name == "expert_group"; }

}  // namespace

std::string DeviceMesh::AxisFor(const ParamAxis& axis) const {
  if (axis.shards == 1 || axes.empty()) return "";
  return axes.size() > 1 && IsExpert(axis) ? axes[1].first : axes[0].first;
}

absl::StatusOr<DeviceMesh> MeshOf(const Graph& graph) {
  std::array<int64_t, 2> parts = {1, 1};  // of other axes, of experts
  bool both = false;
  for (const auto& [role, param] : graph.params()) {
    std::array<bool, 2> here = {false, false};
    for (const ParamAxis& axis : param.type.axes) {
      if (axis.shards == 1) continue;
      const size_t kind = IsExpert(axis) ? 1 : 0;
      here[kind] = true;
      if (parts[kind] != 1 && parts[kind] != axis.shards) {
        return Error(1620, role, absl::StrCat(axis.name, " is split over ", axis.shards, " devices, others over ",
                                              parts[kind]),
                     "split all axes over one number of devices");
      }
      parts[kind] = axis.shards;
    }
    both = both || (here[0] && here[1]);
  }
  DeviceMesh mesh;
  const bool apart = both || (parts[0] != 1 && parts[1] != 1 && parts[0] != parts[1]);
  const int64_t model = apart ? parts[0] : std::max(parts[0], parts[1]);
  if (model > 1) mesh.axes.emplace_back("model", model);
  if (apart) mesh.axes.emplace_back("expert", parts[1]);
  return mesh;
}

std::vector<std::string> SplitOfStored(const DeviceMesh& mesh, const Graph& graph, const Param& param) {
  const Bundle* bundle = graph.BundleOf(param.role);
  std::vector<std::string> split;
  for (const std::vector<ParamAxis>& merged : StoredAxes(param)) {
    const ParamAxis& outermost = merged.front();
    const bool fits = bundle == nullptr || bundle->shards == outermost.shards ||
                      bundle->arrangement == Bundle::Arrangement::kInterleave;
    split.push_back(fits ? mesh.AxisFor(outermost) : "");
  }
  return split;
}

std::vector<std::string> SplitOfState(const DeviceMesh& mesh, const Graph& graph, const Node& node,
                                      const StateSlot& slot) {
  std::vector<std::string> split;
  for (const Axis& axis : slot.type.axes) {
    std::string over;
    for (const auto& [name, role] : node.params) {
      const ParamType& type = graph.FindParam(role)->type;
      const int at = type.Find(axis.name);
      if (at >= 0 && over.empty()) over = mesh.AxisFor(type.axes[at]);
    }
    split.push_back(over);
  }
  return split;
}

std::string ShardingText(const std::vector<std::string>& split) {
  const auto axis = [](std::string* out, const std::string& name) {
    absl::StrAppend(out, name.empty() ? "{}" : absl::StrCat("{\"", name, "\"}"));
  };
  return absl::StrCat("sdy.sharding = #sdy.sharding<@mesh, [", absl::StrJoin(split, ", ", axis), "]>");
}

}  // namespace twinforge
