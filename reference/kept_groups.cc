#include "reference/kept_groups.h"

namespace twinforge {
namespace {

// Stride of groups of `of` along axes [first, end) of the type, given the split that the program has:
// [blocks, of, stride * what is inside]. 0 where they do not run along those.
int64_t StrideAlong(const ParamType& type, const Shape& split, int first, int end) {
  int64_t before = 1, along = 1, after = 1;
  for (int axis = 0; axis < static_cast<int>(type.axes.size()); ++axis) {
    (axis < first ? before : axis < end ? along : after) *= type.axes[axis].size;
  }
  if (split.size() != 3 || split[2] % after != 0) return 0;
  const int64_t stride = split[2] / after, group = split[1] * stride;
  return along % group == 0 && split[0] == before * (along / group) ? stride : 0;
}

}  // namespace

std::optional<KeptGroups> KeptGroupsOf(const Param& param) {
  const ParamType& type = param.type;
  const Weight* at = param.program.get();
  while (at->kind() == WeightKind::kReshape || at->kind() == WeightKind::kTranspose ||
         at->kind() == WeightKind::kCast) {
    at = at->child().get();
  }
  const bool kept = type.is_kernel() && at->kind() == WeightKind::kGroup &&
                    at->group_fn() == GroupFn::kKeepLargest && at->axis() == 1;
  if (!kept || at->group_size() != at->shape()[1]) return std::nullopt;
  KeptGroups groups{at->keep(), at->group_size(), 0, true};
  const int out = type.lead + type.in, rank = static_cast<int>(type.axes.size());
  groups.stride = StrideAlong(type, at->shape(), type.lead, out);
  if (groups.stride != 0) return groups;
  groups.along_in = false;
  groups.stride = StrideAlong(type, at->shape(), out, rank);
  if (groups.stride != 0) return groups;
  return std::nullopt;
}

}  // namespace twinforge
