#include "proof/locate.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "proof/algebra.h"
#include "proof/layers.h"
#include "proof/siblings.h"

namespace twinforge {
namespace {

bool IsNorm(const Node& node) { return node.op == OpKind::kRmsNorm || node.op == OpKind::kLayerNorm; }

// What differs between two forms of one block: parameters by role; the block's path for its attributes.
std::vector<std::string> ChangedRoles(const Graph& before, const Graph& after, const std::string& path) {
  const Node* a = before.FindNode(path);
  const Node* b = after.FindNode(path);
  std::vector<std::string> roles;
  if (a == nullptr || b == nullptr) return {path};
  if (a->op != b->op || a->attrs->SerializeAsString() != b->attrs->SerializeAsString()) roles.push_back(path);
  std::set<std::string> known(roles.begin(), roles.end());
  for (const auto& [slot, role] : a->params) {
    if (!known.insert(role).second) continue;
    const Param* was = before.FindParam(role);
    const Param* is = after.FindParam(role);
    if (is == nullptr || was->program != is->program || !(was->type == is->type)) roles.push_back(role);
  }
  for (const auto& [slot, role] : b->params) {
    if (known.count(role) == 0) roles.push_back(role);
  }
  return roles;
}

// The first watched value that departs, "" if none does.
std::string FirstNode(const std::vector<std::string>& watched, const FunctionValues& source,
                      const FunctionValues& twin) {
  for (size_t t = 0; t < source.nodes.size(); ++t) {
    for (const std::string& path : watched) {
      const auto a = source.nodes[t].find(path), b = twin.nodes[t].find(path);
      if (a == source.nodes[t].end() || b == twin.nodes[t].end()) continue;
      const TensorDifference difference = CompareTensors(a->second, b->second);
      if (!difference.shapes_fit || difference.largest > kSameInRealArithmetic) return path;
    }
  }
  return "";
}

class Locator {
 public:
  Locator(const StepTrace& trace, const Graph& twin, uint64_t seed)
      : trace_(trace), twin_(twin), seed_(seed), watched_(WatchedNodes(trace.graphs[0])) {}

  absl::StatusOr<FaultPlace> Run() {
    TWIN_ASSIGN_OR_RETURN(trials_, TrialsFor(trace_.graphs[0], twin_, seed_));
    TWIN_ASSIGN_OR_RETURN(source_, ValuesOf(trace_.graphs[0], trials_, watched_));
    TWIN_ASSIGN_OR_RETURN(const size_t guilty, FirstGuilty());
    if (guilty < trace_.graphs.size())
      return Describe(trace_.names[guilty - 1], trace_.graphs[guilty - 1], trace_.graphs[guilty]);
    return Describe("", trace_.graphs.back(), twin_);
  }

 private:
  absl::StatusOr<bool> Departs(const Graph& graph) {
    const absl::StatusOr<FunctionValues> values = ValuesOf(graph, trials_);
    if (!values.ok()) return true;  // it can't even be computed
    return CompareOutputs(trials_, source_, *values).differs;
  }

  // The first graph of the trace that departs, by bisection; one past the last if none does.
  absl::StatusOr<size_t> FirstGuilty() {
    TWIN_ASSIGN_OR_RETURN(const bool last, Departs(trace_.graphs.back()));
    if (!last) return trace_.graphs.size();
    size_t good = 0, bad = trace_.graphs.size() - 1;
    while (bad - good > 1) {
      const size_t middle = (good + bad) / 2;
      TWIN_ASSIGN_OR_RETURN(const bool departs, Departs(trace_.graphs[middle]));
      (departs ? bad : good) = middle;
    }
    return bad;
  }

  // `before` and `after`: the graph as it should be, and as it is.
  absl::StatusOr<FaultPlace> Describe(const std::string& step, const Graph& before, const Graph& after) {
    FaultPlace place;
    place.step = step;
    const absl::StatusOr<FunctionValues> values = ValuesOf(after, trials_, watched_);
    if (!values.ok()) {
      place.what = std::string(values.status().message());
      return place;
    }
    const FunctionDifference outputs = CompareOutputs(trials_, source_, *values);
    place.what = outputs.what;
    place.node = FirstNode(watched_, source_, *values);
    if (place.node.empty()) place.node = NodeOfOutput(outputs.output);
    if (place.node.empty()) return place;
    place.layer = LayerName(place.node);
    std::vector<std::string> roles = ChangedRoles(before, after, place.node);
    if (roles.empty()) roles = ChangedBefore(before, after, place.node);
    roles = OddOnes(trace_.graphs[0], after, place.node, std::move(roles), seed_);
    place.role = roles.empty() ? place.node : absl::StrJoin(roles, ", ");
    if (place.step.empty() && after.FindNode(place.node) != nullptr)
      place.step = after.FindNode(place.node)->step;
    return place;
  }

  // The value that an output of the source is.
  std::string NodeOfOutput(const std::string& output) const {
    for (const auto& [name, value] : trace_.graphs[0].outputs()) {
      if (name == output) return trace_.graphs[0].node(value).path;
    }
    return "";
  }

  // A norm that the walk passed over, just before the block.
  static std::vector<std::string> ChangedBefore(const Graph& before, const Graph& after,
                                                const std::string& path) {
    const Node* node = before.FindNode(path);
    std::vector<std::string> roles;
    for (size_t i = 0; node != nullptr && i < node->operands.size(); ++i) {
      const Node& operand = before.node(node->operands[i]);
      if (!IsNorm(operand)) continue;
      for (std::string& role : ChangedRoles(before, after, operand.path)) roles.push_back(std::move(role));
    }
    return roles;
  }

  const StepTrace& trace_;
  const Graph& twin_;
  const uint64_t seed_;
  const std::vector<std::string> watched_;
  std::vector<ProofTrial> trials_;
  FunctionValues source_;
};

}  // namespace

std::vector<std::string> WatchedNodes(const Graph& graph) {
  std::vector<std::string> paths;
  for (const Node& node : graph.nodes()) {
    if (!IsNorm(node) && node.op != OpKind::kInput && node.op != OpKind::kParam) paths.push_back(node.path);
  }
  return paths;
}

absl::StatusOr<FaultPlace> LocateFault(const StepTrace& trace, const Graph& twin, uint64_t seed) {
  return Locator(trace, twin, seed).Run();
}

}  // namespace twinforge
