#include <set>

#include "importers/importer.h"

namespace twinforge {
namespace {

int64_t Elements(const ParamType& type) {
  int64_t count = 1;
  for (const ParamAxis& axis : type.axes) count *= axis.logical;
  return count;
}

}  // namespace

ParameterCounts CountParameters(const Graph& graph) {
  ParameterCounts counts;
  std::set<WeightPtr> tables;  // tied heads share their embedding's program, turned
  double active = 0;
  const auto is_tied_head = [&](const Param& head) {
    for (const WeightPtr& table : tables) {
      if (head.program == table) return true;
      if (head.program->kind() == WeightKind::kTranspose && head.program->child() == table) return true;
    }
    return false;
  };
  for (const Node& node : graph.nodes()) {
    for (const auto& [slot, role] : node.params) {
      // A buffer that training sets outside the gradient: the published counts leave it out.
      if (slot == "router_correction") continue;
      const Param& param = *graph.FindParam(role);
      if (node.op == OpKind::kLmHead && slot == "head" && is_tied_head(param)) continue;
      const int64_t elements = Elements(param.type);
      counts.total += elements;
      if (node.op == OpKind::kEmbedding && slot == "table") tables.insert(param.program);
      if ((node.op == OpKind::kEmbedding && slot == "table") ||
          (node.op == OpKind::kLmHead && slot == "head")) {
        counts.embedding += elements;
      }
      if (param.type.lead == 0) continue;
      counts.expert += elements;
      const double experts = static_cast<double>(graph.param(node, "router").type.Get("expert").logical);
      active -=
          static_cast<double>(elements) * (1 - static_cast<double>(node.attrs->moe().top_k()) / experts);
    }
  }
  counts.active = counts.total + static_cast<int64_t>(active);
  return counts;
}

}  // namespace twinforge
