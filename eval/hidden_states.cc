#include "eval/hidden_states.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace twinforge {
namespace {

// N of "layers.N.rest", or -1.
int64_t LayerOf(absl::string_view path) {
  const std::vector<absl::string_view> parts = absl::StrSplit(path, absl::MaxSplits('.', 2));
  int64_t layer = -1;
  if (parts.size() < 3 || parts[0] != "layers" || !absl::SimpleAtoi(parts[1], &layer)) return -1;
  return layer;
}

}  // namespace

std::map<NodeId, std::string> HiddenStates(const Graph& graph) {
  std::map<NodeId, std::string> names;
  std::map<int64_t, NodeId> last;  // by layer
  NodeId before = -1;
  for (const Node& node : graph.nodes()) {
    const int64_t layer = LayerOf(node.path);
    if (layer < 0) continue;
    if (last.empty()) before = node.id - 1;
    last[layer] = node.id;
  }
  if (last.empty()) return names;
  // Written out, the norm's own name is its parameter's, and its parts follow.
  for (const Node& node : graph.nodes()) {
    const bool whole = node.path == "norm" && node.op != OpKind::kParam;
    if (whole || absl::StartsWith(node.path, "norm.")) last.rbegin()->second = node.id;
  }
  if (before >= 0) names[before] = "hidden_states.0";
  for (const auto& [layer, id] : last) names[id] = absl::StrCat("hidden_states.", layer + 1);
  return names;
}

}  // namespace twinforge
