// Before                          After  fuse_gate_up { shards: 2 }
//   gate  [d_ff, d_model]           gate_up  [gate0 | up0 | gate1 | up1, d_model]
//   up    [d_ff, d_model]
//
// Why on a TPU. One wide multiply that reads its input once. Experts profit most: their d_ff is small, and
// two of them side by side fill the matrix unit's edge. Gates that lie interleaved with their ups row by row
// cost strided lane access on every read; they are laid side by side instead.
//
// Refuses. d_ff that the shards do not divide, members of different dtype or orientation, a bias on
// one of the two only, experts of which one kernel is stacked and the other is not.
//
// Fidelity. MOVED. Shared experts are a bundle of their own.
#include "absl/strings/str_cat.h"
#include "transforms/bundles.h"
#include "transforms/transforms.pb.h"

namespace twinforge {
namespace {

class GateUpBundles : public BundlePlan {
 public:
  absl::string_view name() const override { return "fuse_gate_up"; }

  Judgement JudgeNode(const Node& node) const override {
    if (node.op != OpKind::kGatedMlp && node.op != OpKind::kMoe) return Judgement::Other();
    if (node.Has("gate_bias") != node.Has("up_bias"))
      return Judgement::Refused("only one of gate and up has a bias");
    return Judgement::Fits();
  }

  std::vector<Bundle> Wanted(const Node& node) const override {
    struct Pair {
      absl::string_view gate, up, bundle;
    };
    std::vector<Bundle> wanted;
    for (const Pair& pair : {Pair{"gate", "up", "gate_up"}, Pair{"gate_bias", "up_bias", "gate_up_bias"},
                             Pair{"shared_gate", "shared_up", "shared_gate_up"}}) {
      if (!node.Has(pair.gate) || !node.Has(pair.up)) continue;
      Bundle bundle;
      bundle.role = absl::StrCat(node.path, ".", pair.bundle);
      bundle.members = {std::string(node.Role(pair.gate)), std::string(node.Role(pair.up))};
      wanted.push_back(std::move(bundle));
    }
    return wanted;
  }

  std::string Remedy(absl::string_view axis, int64_t shards) const override {
    return axis == "member" ? absl::StrCat("group_experts with a size that ", shards, " divides")
                            : absl::StrCat("pad_ffn { multiple: ", shards, " }");
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transform>> MakeFuseGateUp(const TransformStep& step,
                                                          const TransformContext& context) {
  const FuseGateUp& params = step.fuse_gate_up();
  return MakeFuse(std::make_unique<GateUpBundles>(), params.shards(), params.shards_of_chip(), context);
}

}  // namespace twinforge
