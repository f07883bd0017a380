// Before                                             After  absorb_weight_ops {}
//   w = param() @w                                     w = param() @w
//   t = transpose(w) {permutation: 1 permutation: 0}   y = dot(x, w)
//   s = multiply(t, 0.5)
//   y = dot(x, s)                                      @w = mul(transpose(source("w"), [1, 0]), fill(0.5))
//
// transpose, reshape, convert, slice, concat, pad and multiply by a constant, where all that they read are
// parameters. What has one parameter and one result keeps the parameter's role; results of several parameters
// (concat), and the several results of one (slices), are parameters called as the ops were.
//
// Why on a TPU. Work on weights alone is done at each step, or folded by a compiler that then holds both
// forms. Done once, while the tensor streams to its file, it costs nothing; and a weight program can be
// printed, priced and turned back, which a node cannot.
//
// Refuses. A parameter that something else reads as well, or that shares its bytes with another: it would
// have to be stored twice. Slices that leave places unread, since no tensor would hold them. Parameters in a
// bundle or a stack, and shards that the op would move. A convert to or from what is no floating type, since
// a weight program rounds and the graph cuts off; padding between places; a factor that is not finite.
//
// Fidelity. MOVED where values only move. REASSOCIATED where they are multiplied; the factor is rounded to
// the type of the product first, as the graph has it. BOUNDED by half a unit where what is computed or
// converted is stored in bf16 or f16, or in any type that does not hold the old one's values.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/builder.h"
#include "ir/ops/shapes.h"
#include "transforms/edit.h"
#include "transforms/transforms.pb.h"
#include "transforms/weight_ops.h"

namespace twinforge {
namespace {

// Which ops of a graph can go into programs, and which of them go together.
class Absorption {
 public:
  explicit Absorption(const Graph& graph) : graph_(graph), sharing_(graph), group_(graph.nodes().size()) {
    for (const Node& node : graph.nodes()) Look(node);
    while (RefuseSharedUses()) {
    }
    for (const auto& [id, verdict] : verdicts_) {
      if (!Absorbed(id)) continue;
      for (NodeId operand : WeightOperands(graph_.node(id))) Join(id, operand);
    }
  }

  // Whether `id` is an op that goes.
  bool Absorbed(NodeId id) const {
    const auto at = verdicts_.find(id);
    return at != verdicts_.end() && at->second.reason.empty() && graph_.node(id).op != OpKind::kParam;
  }
  // Why an op that reads nothing but parameters stays; "" for any other node.
  std::string Reason(NodeId id) const {
    const auto at = verdicts_.find(id);
    return at == verdicts_.end() || graph_.node(id).op == OpKind::kParam ? "" : at->second.reason;
  }
  bool IsWeight(NodeId id) const { return verdicts_.count(id) > 0; }
  const PlannedParam& Plan(NodeId id) const { return *verdicts_.at(id).plan; }

  // The nodes that go together with a parameter, in order; it alone where nothing goes.
  std::vector<NodeId> GroupOf(NodeId param) const {
    std::vector<NodeId> nodes;
    for (const auto& [id, verdict] : verdicts_) {
      if (Root(id) == Root(param)) nodes.push_back(id);
    }
    return nodes;
  }
  bool Leads(NodeId param) const { return GroupOf(param).front() == param; }
  // An op that goes and whose result nothing that goes reads: it becomes a parameter.
  bool IsResult(NodeId id) const {
    if (!Absorbed(id)) return false;
    const std::vector<NodeId>& users = graph_.UsersOf(id);
    return std::none_of(users.begin(), users.end(), [&](NodeId user) { return Absorbed(user); });
  }

  std::vector<NodeId> WeightOperands(const Node& node) const {
    std::vector<NodeId> operands;
    for (NodeId operand : node.operands) {
      if (IsWeight(operand)) operands.push_back(operand);
    }
    return operands;
  }

 private:
  struct Verdict {
    std::optional<PlannedParam> plan;
    std::string reason;
  };

  std::string WhyParamStays(const Param& param) const {
    if (graph_.BundleOf(param.role) != nullptr) return absl::StrCat(param.role, " lies in a bundle");
    if (graph_.StackOf(param.role) != nullptr) return absl::StrCat(param.role, " lies in a stack");
    const std::string partner = sharing_.Partner(param);
    return partner.empty() ? "" : absl::StrCat(param.role, " shares its bytes with ", partner);
  }

  void Look(const Node& node) {
    if (node.op == OpKind::kParam) {
      const Param& param = graph_.param(node, "value");
      verdicts_[node.id] = {PlannedParam{param.type, param.program, param.storage}, WhyParamStays(param)};
      return;
    }
    const std::vector<NodeId> weights = WeightOperands(node);
    if (weights.empty() || !ReadsWeightsAlone(graph_, node, weights)) return;
    Verdict verdict;
    std::vector<PlannedParam> plans;
    for (NodeId id : weights) {
      if (verdict.reason.empty()) verdict.reason = verdicts_.at(id).reason;
      if (verdicts_.at(id).plan) plans.push_back(*verdicts_.at(id).plan);
    }
    if (verdict.reason.empty()) verdict.plan = PlanWeightOp(graph_, node, plans, verdict.reason);
    verdicts_[node.id] = std::move(verdict);
  }

  // Refuses ops one of whose weights has another use that stays; returns whether any was.
  bool RefuseSharedUses() {
    bool changed = false;
    for (auto& [id, verdict] : verdicts_) {
      if (!Absorbed(id)) continue;
      for (NodeId operand : WeightOperands(graph_.node(id))) {
        verdict.reason = WhyUseStays(id, operand);
        changed = changed || !verdict.reason.empty();
        if (!verdict.reason.empty()) break;
      }
    }
    return changed;
  }

  std::string WhyUseStays(NodeId id, NodeId operand) const {
    const Node& weight = graph_.node(operand);
    if (weight.op != OpKind::kParam && !Absorbed(operand)) return verdicts_.at(operand).reason;
    for (const auto& [name, value] : graph_.outputs()) {
      if (value == operand) return absl::StrCat(weight.path, " is the output ", name, " as well");
    }
    const std::vector<NodeId>& users = graph_.UsersOf(operand);
    for (NodeId user : users) {
      if (!Absorbed(user)) return absl::StrCat(graph_.node(user).path, " reads ", weight.path, " as well");
    }
    const auto& operands = graph_.node(id).operands;
    if (std::count(operands.begin(), operands.end(), operand) > 1)
      return absl::StrCat("it reads ", weight.path, " twice");
    return WhyNoPartition(graph_, weight, users);
  }

  // ---- which go together: a forest whose roots are the earliest

  NodeId Root(NodeId id) const {
    while (group_.count(id) > 0) id = group_.at(id);
    return id;
  }
  void Join(NodeId a, NodeId b) {
    const NodeId x = Root(a), y = Root(b);
    if (x != y) group_[std::max(x, y)] = std::min(x, y);
  }

  const Graph& graph_;
  const Sharing sharing_;
  std::map<NodeId, Verdict> verdicts_;
  absl::flat_hash_map<NodeId, NodeId> group_;
};

// Constants, and what spreads them, that nothing but `group` reads.
std::vector<NodeId> ConstantsOf(const Graph& graph, const std::vector<NodeId>& group) {
  std::set<NodeId> gone(group.begin(), group.end());
  for (const auto& [name, value] : graph.outputs()) gone.erase(value);
  std::vector<NodeId> open = group, constants;
  while (!open.empty()) {
    const Node& node = graph.node(open.back());
    open.pop_back();
    for (NodeId operand : node.operands) {
      const Node& read = graph.node(operand);
      if (read.op != OpKind::kConstant && read.op != OpKind::kBroadcast) continue;
      const std::vector<NodeId>& users = graph.UsersOf(operand);
      const bool alone =
          std::all_of(users.begin(), users.end(), [&](NodeId user) { return gone.count(user) > 0; });
      if (!alone || !gone.insert(operand).second) continue;
      constants.push_back(operand);
      open.push_back(operand);
    }
  }
  return constants;
}

class AbsorbWeightOpsTransform : public Transform {
 public:
  absl::string_view name() const override { return "absorb_weight_ops"; }
  Fidelity fidelity() const override { return Fidelity::kReassociated; }

  Fidelity SiteFidelity(const Graph& graph, const Site& site) const override {
    const Absorption absorption(graph);
    Fidelity weakest = Fidelity::kMoved;
    for (NodeId id : absorption.GroupOf(site.node)) weakest = std::min(weakest, absorption.Plan(id).fidelity);
    return weakest;
  }
  Sites FindSites(const Graph& graph) const override {
    const Absorption absorption(graph);
    return SitesOverNodes(graph, [&](const Node& node) {
      if (node.op != OpKind::kParam) {
        std::string reason = absorption.Reason(node.id);
        return reason.empty() ? Judgement::Other() : Judgement::Refused(std::move(reason));
      }
      const std::vector<NodeId>& users = graph.UsersOf(node.id);
      const auto is = [&](auto what) { return std::any_of(users.begin(), users.end(), what); };
      if (is([&](NodeId user) { return absorption.Absorbed(user); }))
        return absorption.Leads(node.id) ? Judgement::Fits() : Judgement::Other();
      if (is([&](NodeId user) { return absorption.IsWeight(user); })) return Judgement::Other();
      return Judgement::Native();
    });
  }

  absl::Status Rewrite(const Site& site, const Observed&, Rewriter& rewriter) const override {
    const Graph& graph = rewriter.graph();
    const Absorption absorption(graph);
    const std::vector<NodeId> group = absorption.GroupOf(site.node);
    const auto results =
        std::count_if(group.begin(), group.end(), [&](NodeId id) { return absorption.IsResult(id); });
    const auto params = std::count_if(group.begin(), group.end(),
                                      [&](NodeId id) { return graph.node(id).op == OpKind::kParam; });
    for (NodeId id : ConstantsOf(graph, group)) rewriter.Remove(id);
    for (NodeId id : group) {
      if (!absorption.IsResult(id)) {
        rewriter.Remove(id);
        continue;
      }
      const std::string role = results == 1 && params == 1 ? site.path : graph.node(id).path;
      // Of several parameters' roundings none is taken off: what the join claims is all of them.
      rewriter.Announce(role, params == 1 ? graph.FindParam(site.path)->program : nullptr,
                        absorption.Plan(id).program);
      const auto emit = [role, plan = absorption.Plan(id)](Rewriter::Moved,
                                                           Builder& to) -> absl::StatusOr<NodeId> {
        return to.Op(OpKind::kParam, role, {}, OpAttrs(),
                     {{"value", Param{role, plan.type, plan.program, plan.storage}}});
      };
      rewriter.Replace(id, emit);
    }
    return absl::OkStatus();
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transform>> MakeAbsorbWeightOps(const TransformStep&,
                                                               const TransformContext&) {
  return std::make_unique<AbsorbWeightOpsTransform>();
}

}  // namespace twinforge
