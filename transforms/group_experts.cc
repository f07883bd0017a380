// Before                                     After  group_experts { size: 4 }
//   gate, up  [expert=8; d_model -> d_ff]      [expert_group=2; d_model -> member=4, d_ff]
//   down      [expert=8; d_ff -> d_model]      [expert_group=2; member=4, d_ff -> d_model]
//
// Why on a TPU. Experts of 512 or 768 channels leave a 256-wide matrix unit half idle and make many short
// multiplies. Four neighbours side by side are one kernel of four times the width; each quarter of its output
// is multiplied by its own member's routing weight, 0 where the member was not chosen, so the sum is the
// same. The router still speaks of single experts. Multiplies rise with the group, bytes of weights do not:
// it pays where a step is bound by memory and most experts are read anyway (batch * top_k several times the
// experts), and loses for prefill. Choosing it is the recipe's business; the cost model prices it.
//
// Refuses. A size that does not divide the experts, experts that are grouped already by another size, and a
// fused gate_up whose shards would no longer divide the axis it is joined along; experts split over more
// shards than there would be groups.
//
// Fidelity. REASSOCIATED: stored values only move, sums over experts run in another order.
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "transforms/edit.h"
#include "transforms/transforms.pb.h"
#include "weights/build.h"

namespace twinforge {
namespace {

class GroupExpertsTransform : public Transform {
 public:
  explicit GroupExpertsTransform(int64_t size) : size_(size) {}

  absl::string_view name() const override { return "group_experts"; }
  Fidelity fidelity() const override { return Fidelity::kReassociated; }

  Sites FindSites(const Graph& graph) const override {
    return SitesOverNodes(graph, [&](const Node& node) {
      if (node.op != OpKind::kMoe) return Judgement::Other();
      if (const ParamAxis* member = FindAxis(graph, node, "member")) {
        if (member->size == size_) return Judgement::Native();
        return Judgement::Refused(absl::StrCat("experts are grouped by ", member->size, " already"));
      }
      const int64_t experts = AxisSize(graph, node, "expert");
      if (size_ == 1) return Judgement::Native();
      if (experts % size_ != 0) {
        return Judgement::Refused(absl::StrCat(experts, " experts do not divide into groups of ", size_));
      }
      for (const auto& [slot, role] : node.params) {
        const ParamAxis& lead = graph.FindParam(role)->type.axes[0];
        if (HasLeadExpert(*graph.FindParam(role)) && experts / size_ % lead.shards != 0) {
          return Judgement::Refused(absl::StrCat(experts / size_, " groups do not divide over the ",
                                                 lead.shards, " shards of ", role));
        }
        const Bundle* bundle = graph.BundleOf(role);
        if (bundle != nullptr && HasLeadExpert(*graph.FindParam(role)) && size_ % bundle->shards != 0) {
          return Judgement::Refused(absl::StrCat(bundle->role, " lies in ", bundle->shards,
                                                 " shards, which do not divide a group of ", size_));
        }
      }
      return Judgement::Fits();
    });
  }

  absl::Status Rewrite(const Site& site, const Observed&, Rewriter& rewriter) const override {
    const auto params = rewriter.graph().node(site.node).params;
    for (const auto& [slot, role] : params) {
      const Param& param = *rewriter.graph().FindParam(role);
      if (HasLeadExpert(param)) Group(Param(param), rewriter);
    }
    return absl::OkStatus();
  }

 private:
  static bool HasLeadExpert(const Param& param) {
    return param.type.lead == 1 && param.type.axes[0].name == "expert";
  }

  // [expert, d_model, d_ff] -> [group, member, d_model, d_ff] -> [group, d_model, member, d_ff]; `member`
  // stands directly before the axis that it widens: d_ff, or the output of a bias that is added per member.
  void Group(const Param& param, Rewriter& rewriter) const {
    ParamType type = param.type;
    int widened = type.Find("d_ff");
    if (widened < 0) widened = static_cast<int>(type.axes.size()) - 1;
    const int64_t experts = type.axes[0].size;

    Shape split = type.shape();
    split[0] = size_;
    split.insert(split.begin(), experts / size_);
    std::vector<int64_t> perm = {0};
    for (int axis = 1; axis < static_cast<int>(type.axes.size()); ++axis) {
      if (axis == widened) perm.push_back(1);
      perm.push_back(axis + 1);
    }
    WeightPtr program = Transpose(Reshape(param.program, split), perm);

    type.axes[0] = {"expert_group", experts / size_, experts / size_, type.axes[0].shards};
    type.axes.insert(type.axes.begin() + widened, ParamAxis{"member", size_, size_});
    if (widened < type.lead + type.in) ++type.in;
    rewriter.SetParam(param.role, type, program);
    Storage storage = param.storage;
    storage.per_expert = false;
    rewriter.SetStorage(param.role, storage);
  }

  int64_t size_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transform>> MakeGroupExperts(const TransformStep& step,
                                                            const TransformContext&) {
  const int64_t size = step.group_experts().size();
  if (size < 1) return Error(1505, "group_experts.size", absl::StrCat("is ", size, "; it must be positive"));
  return std::make_unique<GroupExpertsTransform>(size);
}

}  // namespace twinforge
