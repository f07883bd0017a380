// Joining parameters into one stored tensor: what fuse_qkv and fuse_gate_up have in common.
//
// A bundle changes where values lie and nothing else, so it is judged by what lies
// together: one dtype, one orientation, a joined axis that the shards divide.
#ifndef TWINFORGE_TRANSFORMS_BUNDLES_H_
#define TWINFORGE_TRANSFORMS_BUNDLES_H_

#include <memory>
#include <string>
#include <vector>

#include "transforms/edit.h"

namespace twinforge {

// Which bundles a transform makes at a node, and what it says where an axis does not divide.
class BundlePlan {
 public:
  virtual ~BundlePlan() = default;
  virtual absl::string_view name() const = 0;
  // Fits, or that it is no place for this transform, or a refusal for the node's own sake.
  virtual Judgement JudgeNode(const Node& node) const = 0;
  // Roles and members; shards are filled in.
  virtual std::vector<Bundle> Wanted(const Node& node) const = 0;
  // The step that would make `axis` divide by the shards.
  virtual std::string Remedy(absl::string_view axis, int64_t shards) const = 0;
};

// The transform that makes them, MOVED. Members may lie apart, or together in another arrangement; a bundle
// of any other set of parameters is a refusal. `shards` and `fact` are the step's, 1 where neither is given.
absl::StatusOr<std::unique_ptr<Transform>> MakeFuse(std::unique_ptr<BundlePlan> plan, int64_t shards,
                                                    int fact, const TransformContext& context);

}  // namespace twinforge

#endif  // TWINFORGE_TRANSFORMS_BUNDLES_H_
