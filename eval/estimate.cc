#include "eval/estimate.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "ir/decompose.h"

namespace twinforge {
namespace {

using Symbols = std::map<std::string, int64_t>;

class Estimate {
 public:
  explicit Estimate(const Symbols& symbols) : symbols_(symbols) { symbols_.emplace("past", 0); }

  // Of a graph whose composites, if any, are estimated by their decompositions.
  absl::StatusOr<EvaluationCost> Of(const Graph& graph) {
    EvaluationCost cost;
    std::vector<double> alive(graph.nodes().size(), 0);
    double now = 0;
    for (const Node& node : graph.nodes()) {
      double within = 0;
      if (node.op != OpKind::kParam) {
        TWIN_ASSIGN_OR_RETURN(alive[node.id], Elements(node.type));
        TWIN_ASSIGN_OR_RETURN(const EvaluationCost own, OfNode(graph, node, alive[node.id]));
        within = own.elements;
        cost.multiply_adds += own.multiply_adds;
      }
      now += alive[node.id];
      cost.elements = std::max(cost.elements, now + within);
      for (const NodeId operand : node.operands) {
        if (graph.UsersOf(operand).back() != node.id || IsOutput(graph, operand)) continue;
        now -= alive[operand];
        alive[operand] = 0;
      }
    }
    return cost;
  }

 private:
  static bool IsOutput(const Graph& graph, NodeId id) {
    const auto& outputs = graph.outputs();
    return std::any_of(outputs.begin(), outputs.end(),
                       [&](const auto& output) { return output.second == id; });
  }

  absl::StatusOr<double> Extent(const Axis& axis) const {
    const std::optional<int64_t> size = axis.size.Bind(symbols_);
    if (size && *size >= 0) return static_cast<double>(*size);
    return Error(1901, axis.name, absl::StrCat("axis ", axis.name, "=", axis.size.Text(), " has no size"));
  }

  absl::StatusOr<double> Elements(const Type& type) const {
    double count = 1;
    for (const Axis& axis : type.axes) {
      TWIN_ASSIGN_OR_RETURN(const double extent, Extent(axis));
      count *= extent;
    }
    return count;
  }

  // What the node does, and what lies beside its result meanwhile.
  absl::StatusOr<EvaluationCost> OfNode(const Graph& graph, const Node& node, double elements) {
    if (Info(node.op).composite != nullptr) return OfComposite(graph, node);
    EvaluationCost cost{0, elements};
    if (node.op != OpKind::kDot) return cost;
    const Type& left = graph.node(node.operands[0]).type;
    for (const int64_t axis : node.attrs->dot().lhs_contract()) {
      TWIN_ASSIGN_OR_RETURN(const double extent, Extent(left.axes[axis]));
      cost.multiply_adds *= extent;
    }
    return cost;
  }

  // Layers are mostly alike: each kind is looked at once.
  absl::StatusOr<EvaluationCost> OfComposite(const Graph& graph, const Node& node) {
    std::string kind = absl::StrCat(Info(node.op).name, " ", node.attrs->SerializeAsString());
    for (const NodeId operand : node.operands) absl::StrAppend(&kind, " ", Text(graph.node(operand).type));
    for (const auto& [slot, role] : node.params)
      absl::StrAppend(&kind, " ", slot, "=", Text(graph.FindParam(role)->type));
    const auto known = kinds_.find(kind);
    if (known != kinds_.end()) return known->second;
    TWIN_ASSIGN_OR_RETURN(const Graph body, DecompositionOf(graph, node, DecompositionDepth::kPrimitives,
                                                            /*with_state=*/false));
    TWIN_ASSIGN_OR_RETURN(const EvaluationCost cost, Of(body));
    return kinds_[kind] = cost;
  }

  Symbols symbols_;
  std::map<std::string, EvaluationCost> kinds_;
};

}  // namespace

absl::StatusOr<EvaluationCost> CostOfEvaluation(const Graph& graph, const Symbols& symbols) {
  return Estimate(symbols).Of(graph);
}

absl::Status CheckAffordable(const EvaluationCost& cost) {
  if (cost.elements <= kMostLiveElements && cost.multiply_adds <= kMostMultiplyAdds) return absl::OkStatus();
  return Error(
      1902, "",
      absl::StrFormat("it would take %.2g multiply-adds (%.2g allowed) and values of %.2g elements at "
                      "once (%.2g allowed)",
                      cost.multiply_adds, kMostMultiplyAdds, cost.elements, kMostLiveElements),
      "evaluate a smaller model, fewer sequences or shorter ones");
}

}  // namespace twinforge
