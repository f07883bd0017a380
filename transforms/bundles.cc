#include "transforms/bundles.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace twinforge {
namespace {

// Bundles are joined along the first out axis; a vector's axes after the lead ones are all out.
const ParamAxis& JoinedAxis(const ParamType& type) { return type.axes[type.lead + type.in]; }

bool SameMembers(const Bundle& a, const Bundle& b) {
  return std::is_permutation(a.members.begin(), a.members.end(), b.members.begin(), b.members.end());
}

Judgement JudgeMember(const Graph& graph, const Param& first, const Param& member, int64_t shards,
                      absl::FunctionRef<std::string(absl::string_view)> remedy) {
  if (member.type.dtype != first.type.dtype) {
    return Judgement::Refused(absl::StrCat(member.role, " is ", Name(member.type.dtype), ", ", first.role,
                                           " is ", Name(first.type.dtype)));
  }
  if (member.type.is_kernel() && member.storage.orientation != first.storage.orientation) {
    return Judgement::Refused(
        absl::StrCat(member.role, " and ", first.role, " lie in different orientations"));
  }
  if (member.storage.per_expert != first.storage.per_expert) {
    return Judgement::Refused(
        absl::StrCat("only one of ", member.role, " and ", first.role, " is stored expert by expert"));
  }
  const ParamAxis& axis = JoinedAxis(member.type);
  if (axis.shards != JoinedAxis(first.type).shards || (axis.shards != 1 && axis.shards != shards)) {
    return Judgement::Refused(absl::StrCat(axis.name, " of ", member.role, " is split over ", axis.shards,
                                           " shards: fuse for as many"));
  }
  if (axis.size % shards != 0) {
    return Judgement::Refused(absl::StrCat(axis.name, " ", axis.size, " does not divide into ", shards,
                                           " shards: ", remedy(axis.name), " would do"));
  }
  return Judgement::Fits();
}

// Whether `wanted` can be made.
Judgement JudgeBundle(const Graph& graph, const Bundle& wanted,
                      absl::FunctionRef<std::string(absl::string_view axis)> remedy) {
  const Bundle* present = nullptr;
  for (const std::string& member : wanted.members) {
    const Bundle* bundle = graph.BundleOf(member);
    if (bundle == nullptr) continue;
    if (!SameMembers(*bundle, wanted)) {
      return Judgement::Refused(absl::StrCat(member, " already lies in ", bundle->role, " with others"));
    }
    present = bundle;
  }
  if (present != nullptr && present->members == wanted.members &&
      present->arrangement == wanted.arrangement && present->shards == wanted.shards) {
    return Judgement::Native();
  }
  const Param& first = *graph.FindParam(wanted.members[0]);
  for (const std::string& member : wanted.members) {
    if (const LayerStack* stack = graph.StackOf(present != nullptr ? present->role : member)) {
      return Judgement::Refused(
          absl::StrCat(member, " lies stacked in ", stack->role, ": fuse before stack_layers"));
    }
    Judgement verdict = JudgeMember(graph, first, *graph.FindParam(member), wanted.shards, remedy);
    if (verdict.refused()) return verdict;
  }
  return Judgement::Fits();
}

// Makes it, in place of the bundle that held the same members. REQUIRES: judged to fit.
void MakeBundle(Rewriter& rewriter, const Bundle& wanted) {
  const Bundle* present = rewriter.graph().BundleOf(wanted.members[0]);
  if (present != nullptr) rewriter.RemoveBundle(std::string(present->role));
  rewriter.AddBundle(wanted);
}

class FuseTransform : public Transform {
 public:
  FuseTransform(std::unique_ptr<BundlePlan> plan, int64_t shards) : plan_(std::move(plan)), shards_(shards) {}

  absl::string_view name() const override { return plan_->name(); }
  Fidelity fidelity() const override { return Fidelity::kMoved; }

  Sites FindSites(const Graph& graph) const override {
    const auto remedy = [this](absl::string_view axis) { return plan_->Remedy(axis, shards_); };
    return SitesOverNodes(graph, [&](const Node& node) {
      Judgement verdict = plan_->JudgeNode(node);
      if (verdict.kind != Judgement::Kind::kFits) return verdict;
      verdict = Judgement::Other();
      for (const Bundle& bundle : Wanted(node)) verdict = Join(verdict, JudgeBundle(graph, bundle, remedy));
      return verdict;
    });
  }

  absl::Status Rewrite(const Site& site, const Observed&, Rewriter& rewriter) const override {
    for (const Bundle& bundle : Wanted(rewriter.graph().node(site.node))) MakeBundle(rewriter, bundle);
    return absl::OkStatus();
  }

 private:
  std::vector<Bundle> Wanted(const Node& node) const {
    std::vector<Bundle> wanted = plan_->Wanted(node);
    for (Bundle& bundle : wanted) bundle.shards = shards_;
    return wanted;
  }

  std::unique_ptr<BundlePlan> plan_;
  int64_t shards_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transform>> MakeFuse(std::unique_ptr<BundlePlan> plan, int64_t shards,
                                                    int fact, const TransformContext& context) {
  TWIN_ASSIGN_OR_RETURN(shards,
                        NumberOrFact(absl::StrCat(plan->name(), ".shards"), shards, fact, context.facts, 1));
  return std::make_unique<FuseTransform>(std::move(plan), shards);
}

}  // namespace twinforge
