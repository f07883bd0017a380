// Joining parameters into one stored tensor: what fuse_qkv and fuse_gate_up have in common.
//
// A bundle changes where values lie and nothing else, so it is judged by what lies
// together: one dtype, one orientation, a joined axis that the shards divide.
#ifndef TWINFORGE_TRANSFORMS_BUNDLES_H_
#define TWINFORGE_TRANSFORMS_BUNDLES_H_

#include "transforms/edit.h"

namespace twinforge {

// Whether `wanted` can be made. Its members may lie apart, or together in another
// arrangement; a bundle of any other set of parameters is a refusal.
// `remedy(axis)` names the step that would make an axis divide by the shards.
Verdict JudgeBundle(const Graph& graph, const Bundle& wanted,
                    absl::FunctionRef<std::string(absl::string_view axis)> remedy);

// Makes it, in place of the bundle that held the same members. REQUIRES: judged to fit.
void MakeBundle(Rewriter& rewriter, const Bundle& wanted);

}  // namespace twinforge

#endif  // TWINFORGE_TRANSFORMS_BUNDLES_H_
