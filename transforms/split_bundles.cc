// Before  split_bundles {}                After
//   qkv  [q | k | v, d_model]               q  [heads * head_dim, d_model]
//                                           k  [kv_heads * head_dim, d_model]
//                                           v  [kv_heads * head_dim, d_model]
//
// Why on a TPU. A partitioner cuts one axis of a tensor in equal runs. Of q, k and v in one tensor, or of
// gate above up, such a cut gives the first devices all of the one and none of the other; apart, each is cut
// by its own heads. Checkpoints that come fused (phi3, gpt2, gpt_oss) are sharded by role only so.
//
// Refuses. A bundle that lies in a stack of layers: what the stack holds would not be there any more.
//
// Fidelity. MOVED. fuse_qkv and fuse_gate_up are the way back, with shards interleaved if asked.
#include "absl/strings/str_cat.h"
#include "transforms/edit.h"
#include "transforms/transforms.pb.h"

namespace twinforge {
namespace {

// The bundles whose first member is a node's, in the order of its slots. (Of a graph of primitives every
// parameter is a node.)
std::vector<std::string> BundlesOf(const Graph& graph, const Node& node) {
  std::vector<std::string> roles;
  for (const auto& [slot, role] : node.params) {
    const Bundle* bundle = graph.BundleOf(role);
    if (bundle != nullptr && bundle->members[0] == role) roles.push_back(bundle->role);
  }
  return roles;
}

bool MayBeFused(OpKind op) {
  return op == OpKind::kAttention || op == OpKind::kLatentAttention || op == OpKind::kGatedMlp ||
         op == OpKind::kMoe || op == OpKind::kParam;
}

class SplitBundlesTransform : public Transform {
 public:
  absl::string_view name() const override { return "split_bundles"; }
  Fidelity fidelity() const override { return Fidelity::kMoved; }

  Sites FindSites(const Graph& graph) const override {
    return SitesOverNodes(graph, [&](const Node& node) {
      Judgement judgement = MayBeFused(node.op) ? Judgement::Native() : Judgement::Other();
      for (const std::string& bundle : BundlesOf(graph, node)) {
        const LayerStack* stack = graph.StackOf(bundle);
        judgement = Join(judgement, stack == nullptr ? Judgement::Fits()
                                                     : Judgement::Refused(absl::StrCat(
                                                           bundle, " lies stacked in ", stack->role,
                                                           ": put split_bundles before stack_layers")));
      }
      return judgement;
    });
  }

  absl::Status Rewrite(const Site& site, const Observed&, Rewriter& rewriter) const override {
    for (const std::string& bundle : BundlesOf(rewriter.graph(), rewriter.graph().node(site.node)))
      rewriter.RemoveBundle(bundle);
    return absl::OkStatus();
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transform>> MakeSplitBundles(const TransformStep&, const TransformContext&) {
  return std::make_unique<SplitBundlesTransform>();
}

}  // namespace twinforge
