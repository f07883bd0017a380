// Weights of which a few in every group are kept, as keep_n_of_m makes them: what a kernel that skips the
// others must know.
#ifndef TWINFORGE_REFERENCE_KEPT_GROUPS_H_
#define TWINFORGE_REFERENCE_KEPT_GROUPS_H_

#include <optional>

#include "ir/graph.h"

namespace twinforge {

// Of every `of` places that stand `stride` apart along the merged in (or out) axis, `keep` are not 0.
struct KeptGroups {
  int64_t keep = 0, of = 0, stride = 1;
  bool along_in = true;
};

// What the parameter's program shows. Nothing for a twin that was forged: its tensors hold the zeros.
std::optional<KeptGroups> KeptGroupsOf(const Param& param);

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_KEPT_GROUPS_H_
