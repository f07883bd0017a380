// Before                                    After  fuse_qkv { shards: 2 }
//   q  [heads*head_dim,    d_model]           qkv  [q0 | k0 | v0 | q1 | k1 | v1, d_model]
//   k  [kv_heads*head_dim, d_model]
//   v  [kv_heads*head_dim, d_model]
//
// Why on a TPU. One wide matrix multiply instead of three narrow ones: the input is read once, and k and v of
// a model with few kv heads no longer leave most of the unit's edge idle. With shards the parts alternate, so
// that each device's slice is contiguous and already its own q, k and v.
//
// Refuses. Heads or kv_heads that the shards do not divide (the reason names the pad or the replication
// that would do), members of different dtype or orientation, a bias on some of the three only.
// Where a family stores them fused, the importer made the bundle, and there is nothing to do.
//
// Fidelity. MOVED. The order is valid for exactly one count of shards, which the bundle records.
#include "absl/strings/str_cat.h"
#include "transforms/bundles.h"
#include "transforms/transforms.pb.h"

namespace twinforge {
namespace {

class QkvBundles : public BundlePlan {
 public:
  absl::string_view name() const override { return "fuse_qkv"; }

  Judgement JudgeNode(const Node& node) const override {
    if (node.op != OpKind::kAttention) return Judgement::Other();
    const int biases = node.Has("q_bias") + node.Has("k_bias") + node.Has("v_bias");
    if (biases != 0 && biases != 3) return Judgement::Refused("only some of q, k and v have a bias");
    return Judgement::Fits();
  }

  std::vector<Bundle> Wanted(const Node& node) const override {
    std::vector<Bundle> wanted;
    for (absl::string_view suffix : {"", "_bias"}) {
      Bundle bundle;
      bundle.role = absl::StrCat(node.path, ".qkv", suffix);
      for (absl::string_view part : {"q", "k", "v"}) {
        const absl::string_view role = node.Role(absl::StrCat(part, suffix));
        if (!role.empty()) bundle.members.emplace_back(role);
      }
      if (!bundle.members.empty()) wanted.push_back(std::move(bundle));
    }
    return wanted;
  }

  std::string Remedy(absl::string_view axis, int64_t shards) const override {
    return axis == "kv_heads" ? absl::StrCat("replicate_kv_heads { to_multiple: ", shards, " }")
                              : absl::StrCat("pad_heads { multiple: ", shards, " }");
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transform>> MakeFuseQkv(const TransformStep& step,
                                                       const TransformContext& context) {
  const FuseQkv& params = step.fuse_qkv();
  return MakeFuse(std::make_unique<QkvBundles>(), params.shards(), params.shards_of_chip(), context);
}

}  // namespace twinforge
