#include "importers/build_graph.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "ir/builder.h"

namespace twinforge {
namespace {

// How each role lies on disk, by the first tensor that holds it. A tied role lies as its partner, turned.
std::map<std::string, Storage> StorageOfRoles(const Layout& layout,
                                              const std::map<std::string, ParamType>& types) {
  std::map<std::string, Storage> storage;
  for (const LayoutTensor& tensor : layout.tensors) {
    for (const LayoutPart& part : tensor.parts) {
      const auto type = types.find(part.role);
      if (type != types.end()) storage.emplace(part.role, StorageOf(part, type->second));
    }
  }
  return storage;
}

}  // namespace

absl::StatusOr<Graph> BuildGraph(const std::string& name, Blueprint plan, const CompiledLayout& layout,
                                 std::map<std::string, WeightPtr> programs) {
  const std::map<std::string, Storage> storage = StorageOfRoles(layout.layout, plan.types);
  Builder builder(name);
  const NodeId tokens =
      builder.Input("tokens", {DType::kI32, {{"batch", Dim::Symbol("batch")}, {"seq", Dim::Symbol("seq")}}});
  std::vector<NodeId> ids;
  for (PlannedNode& node : plan.nodes) {
    std::vector<NodeId> operands;
    for (int operand : node.operands) operands.push_back(operand < 0 ? tokens : ids[operand]);
    std::vector<std::pair<std::string, Param>> params;
    for (auto& [slot, role] : node.params) {
      const auto program = programs.find(role);
      TWIN_CHECK(program != programs.end(), absl::StrCat("no program for ", role));
      Param param;
      param.type = std::move(plan.types.at(role));
      param.program = std::move(program->second);
      const auto lies = storage.find(role);
      if (lies != storage.end()) param.storage = lies->second;
      params.emplace_back(std::move(slot), std::move(param));
    }
    ids.push_back(builder.Op(node.op, std::move(node.path), std::move(operands), std::move(node.attrs),
                             std::move(params)));
  }
  for (const auto& [output, node] : plan.outputs) builder.Output(output, ids[node]);
  for (const Bundle& bundle : layout.bundles) builder.AddBundle(bundle);
  return builder.Finish();
}

}  // namespace twinforge
