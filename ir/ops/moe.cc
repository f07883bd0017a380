// A mixture of experts: every expert's output for every token, times its weight from the router, summed; plus
// the shared experts, which see each token. Written out densely: what is not chosen has weight 0.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ir/ops/common.h"
#include "ir/ops/composite.h"
#include "ir/ops/shapes.h"

namespace twinforge {
namespace {

absl::StatusOr<Type> Infer(const Graph& graph, const Node& node) {
  return Through(graph, node, "router", "down");
}

// Experts one by one or joined in groups, and all slots alike.
absl::Status VerifyGrouping(const Graph& graph, const Node& node) {
  const ParamType& up = graph.param(node, "up").type;
  const std::string& lead = up.axes[0].name;
  for (absl::string_view slot : {"gate", "down", "gate_bias", "up_bias", "down_bias"}) {
    if (!node.Has(slot)) continue;
    const std::string& other = graph.param(node, slot).type.axes[0].name;
    if (other != lead) return Misfit(node, absl::StrCat(slot, " has axis ", other, ", up has ", lead));
  }
  if (lead == "expert") return absl::OkStatus();
  const int64_t groups = up.Get("expert_group").size;
  const int64_t member = up.Get("member").size;
  const int64_t experts = graph.param(node, "router").type.Get("expert").size;
  if (member * groups == experts) return absl::OkStatus();
  return Misfit(node, absl::StrCat(groups, " groups of ", member, " are not ", experts, " experts"));
}

RouterAttrs RouterOf(const MoeAttrs& attrs) {
  RouterAttrs router;
  router.set_top_k(attrs.top_k());
  router.set_score(attrs.score());
  router.set_renormalize(attrs.renormalize());
  router.set_routed_scale(attrs.routed_scale());
  router.set_groups(attrs.groups());
  router.set_top_groups(attrs.top_groups());
  return router;
}

absl::Status Check(const Graph& graph, const Node& node) {
  const MoeAttrs& attrs = node.attrs->moe();
  const int64_t experts = graph.param(node, "router").type.Get("expert").logical;
  TWIN_RETURN_IF_ERROR(VerifyRouter(node, RouterOf(attrs), experts));
  TWIN_RETURN_IF_ERROR(VerifyGrouping(graph, node));
  TWIN_RETURN_IF_ERROR(VerifyMlp(node, attrs.expert()));
  TWIN_RETURN_IF_ERROR(AllOrNone(node, {"shared_gate", "shared_up", "shared_down"}));
  return node.Has("shared_up") ? VerifyMlp(node, attrs.shared()) : absl::OkStatus();
}

// Logistic scores are computed in f32 from the start, the product with the router's kernel included.
NodeId Weights(Emitter& emit, const MoeAttrs& attrs, NodeId x) {
  const NodeId read = attrs.score() == MoeAttrs::SIGMOID ? emit.Widen(x) : x;
  std::vector<NodeId> operands = {Project(emit, read, "router", "router_bias")};
  if (emit.Has("router_correction")) operands.push_back(emit.Param("router_correction"));
  OpAttrs router;
  *router.mutable_router() = RouterOf(attrs);
  return emit.Convert(emit.Composite(OpKind::kRouter, std::move(operands), std::move(router)),
                      emit.DTypeOf(x));
}

// sum over experts of weight * down(inner), with the experts' axes (one, or group and member) of `inner`
// [.., experts.., d_ff] and `weights` [.., experts..].
NodeId Mixture(Emitter& emit, NodeId inner, NodeId weights) {
  const ParamType& type = emit.TypeOfParam("down");
  const int contracted = type.lead + type.in, rank = emit.Rank(inner);
  Emitter::DotPlaces places;
  for (int i = 0; i < contracted; ++i) {
    places.x_contract.push_back(rank - contracted + i);
    places.y_contract.push_back(i);
  }
  const DType dtype = emit.DTypeOf(inner);
  const NodeId weighted = emit.Multiply(inner, emit.SpreadFirst(weights, inner));
  NodeId y = emit.Dot(weighted, emit.Convert(emit.Param("down"), dtype), places);
  if (!emit.Has("down_bias")) return y;
  Emitter::DotPlaces experts;
  for (int i = 0; i + 1 < contracted; ++i) {
    experts.x_contract.push_back(emit.Rank(weights) - (contracted - 1) + i);
    experts.y_contract.push_back(i);
  }
  return emit.Add(y, emit.Dot(weights, emit.Convert(emit.Param("down_bias"), dtype), experts));
}

NodeId Decompose(Emitter& emit) {
  const MoeAttrs& attrs = emit.attrs().moe();
  const NodeId x = emit.operand();
  const NodeId weights = Weights(emit, attrs, x);
  const NodeId gate = Project(emit, x, "gate", "gate_bias"), up = Project(emit, x, "up", "up_bias");
  const NodeId inner = Gate(emit, attrs.expert(), gate, up);
  std::vector<Axis> experts = emit.AxesOf(inner);
  if (!experts.empty()) experts.pop_back();
  NodeId y = Mixture(emit, inner, emit.Reshape(weights, std::move(experts)));
  if (emit.Has("shared_up")) {
    const NodeId shared =
        Gate(emit, attrs.shared(), Project(emit, x, "shared_gate"), Project(emit, x, "shared_up"));
    y = emit.Add(y, Project(emit, shared, "shared_down"));
  }
  return y;
}

}  // namespace

const CompositeOp kMoeOp = {Infer, Check, Decompose};

}  // namespace twinforge
