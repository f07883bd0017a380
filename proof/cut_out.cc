#include "proof/cut_out.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "ir/builder.h"
#include "ir/text.h"
#include "proof/algebra.h"

namespace twinforge {
namespace {

bool ShowsTheFault(const absl::StatusOr<Graph>& source, const absl::StatusOr<Graph>& twin, uint64_t seed) {
  if (!source.ok() || !twin.ok()) return false;
  const absl::StatusOr<FunctionDifference> found = CompareFunctions(*source, *twin, seed);
  return found.ok() && found->differs;
}

}  // namespace

absl::StatusOr<Graph> CutOutNode(const Graph& graph, const std::string& path) {
  const Node* node = graph.FindNode(path);
  TWIN_CHECK(node != nullptr, "the block is one of the graph's");
  Builder builder(path);
  std::vector<NodeId> operands;
  for (size_t i = 0; i < node->operands.size(); ++i) {
    const Node& operand = graph.node(node->operands[i]);
    // An input of the graph keeps its name, on which what is fed to it depends.
    const std::string name = operand.op == OpKind::kInput ? operand.path : absl::StrCat("x", i);
    operands.push_back(builder.Input(name, operand.type));
  }
  std::vector<std::pair<std::string, Param>> params;
  for (const auto& [slot, role] : node->params) params.emplace_back(slot, *graph.FindParam(role));
  builder.Output("out", builder.Op(node->op, path, std::move(operands), *node->attrs, std::move(params)));
  return builder.Finish();
}

std::string SmallestCase(const Graph& source, const Graph& twin, const std::string& path, uint64_t seed) {
  const auto text = [](const Graph& a, const Graph& b) {
    return absl::StrCat("source:\n", Text(a), "twin:\n", Text(b));
  };
  const Node* a = source.FindNode(path);
  const Node* b = twin.FindNode(path);
  if (a != nullptr && b != nullptr && !a->operands.empty() && a->operands.size() == b->operands.size()) {
    const absl::StatusOr<Graph> cut_source = CutOutNode(source, path), cut_twin = CutOutNode(twin, path);
    if (ShowsTheFault(cut_source, cut_twin, seed)) return text(*cut_source, *cut_twin);
  }
  return text(source, twin);
}

}  // namespace twinforge
