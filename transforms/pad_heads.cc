// Before  28 query heads, 4 kv heads          After  pad_heads { multiple: 16 }
//   q  [d_model -> heads=28, head_dim]          [d_model -> heads=32~28, head_dim]    7 live, 1 zero, in each
//   kv group o  [heads=28, head_dim -> d_model]          [heads=32~28, head_dim -> d_model] k, v  kv_heads=4
//   as they were
//
// Why on a TPU. Tensor parallelism gives every device the same count of heads. 28 heads do not
// divide by 8; a runtime then replicates the whole attention, or refuses.
//
// Exact because a new head's rows of `o` are zero. Query head h reads kv head h / (heads / kv_heads), so
// heads are added inside every group, never at the tail, and each live head keeps its kv head. Where every
// query head has its own kv head (also latent attention), both are added at the end. Biases of a new head are
// 0, and so is its sink, whose weight falls on the zero rows as well.
//
// Refuses. A multiple that equal groups reach only beyond twice the heads: that is no padding any more.
// A q_norm or k_norm with eps 0, which would divide 0 by 0 in a new head.
//
// Fidelity. MOVED: live values only move.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "transforms/edit.h"
#include "transforms/transforms.pb.h"

namespace twinforge {
namespace {

class PadHeadsTransform : public Transform {
 public:
  explicit PadHeadsTransform(int64_t multiple) : multiple_(multiple) {}

  absl::string_view name() const override { return "pad_heads"; }
  Fidelity fidelity() const override { return Fidelity::kMoved; }

  Sites FindSites(const Graph& graph) const override {
    return SitesOverNodes(graph, [&](const Node& node) { return Judge(graph, node); });
  }

  absl::Status Rewrite(const Site& site, const Observed&, Rewriter& rewriter) const override {
    const Node& node = rewriter.graph().node(site.node);
    const int64_t heads = AxisSize(rewriter.graph(), node, "heads");
    const int64_t groups = Groups(rewriter.graph(), node);
    const bool own_kv = node.op == OpKind::kAttention && groups == 1 &&
                        FindAxis(rewriter.graph(), node, "kv_heads")->size == heads;
    const int64_t padded = PaddedHeads(heads, groups);
    const IndexMap map = IndexMap::Tile(TailPad(heads / groups, padded / groups), groups, heads / groups);
    MapAxisEverywhere(rewriter, site.node, "heads", map);
    if (own_kv) MapAxisEverywhere(rewriter, site.node, "kv_heads", map);
    return absl::OkStatus();
  }

 private:
  // How many groups of query heads must grow alike: one where each head has its own keys.
  static int64_t Groups(const Graph& graph, const Node& node) {
    const ParamAxis* kv = FindAxis(graph, node, "kv_heads");
    return kv == nullptr || kv->size == AxisSize(graph, node, "heads") ? 1 : kv->size;
  }

  int64_t PaddedHeads(int64_t heads, int64_t groups) const {
    int64_t group = heads / groups;
    while (groups * group % multiple_ != 0) ++group;
    return groups * group;
  }

  Judgement Judge(const Graph& graph, const Node& node) const {
    if (node.op != OpKind::kAttention && node.op != OpKind::kLatentAttention) return Judgement::Other();
    const int64_t heads = AxisSize(graph, node, "heads");
    if (heads % multiple_ == 0) return Judgement::Native();
    const int64_t groups = Groups(graph, node);
    const int64_t padded = PaddedHeads(heads, groups);
    if (padded > 2 * heads) {
      return Judgement::Refused(absl::StrCat("a multiple of ", multiple_, " in equal groups of ", groups,
                                             " kv heads needs ", padded, " heads, more than twice the ",
                                             heads, " there are"));
    }
    if ((node.Has("q_norm") || node.Has("k_norm")) && !(node.attrs->attention().qk_norm_eps() > 0)) {
      return Judgement::Refused("q_norm and k_norm have eps 0, which divides 0 by 0 in a padded head");
    }
    return JudgeGrowth("heads", padded);
  }

  int64_t multiple_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transform>> MakePadHeads(const TransformStep& step,
                                                        const TransformContext& context) {
  const PadHeads& params = step.pad_heads();
  TWIN_ASSIGN_OR_RETURN(const int64_t multiple, NumberOrFact("pad_heads.multiple", params.multiple(),
                                                             params.multiple_of_chip(), context.facts));
  return std::make_unique<PadHeadsTransform>(multiple);
}

}  // namespace twinforge
