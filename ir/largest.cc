#include "ir/largest.h"

namespace twinforge {

int64_t LargestSize(absl::string_view axis) {
  if (axis == "layers") return 10000;
  if (axis == "positions") return int64_t{1} << 28;
  if (axis == "vocab") return int64_t{1} << 24;
  for (absl::string_view narrow :
       {"heads", "kv_heads", "head_dim", "nope_dim", "rope_dim", "v_head_dim", "expert", "types"}) {
    if (axis == narrow) return int64_t{1} << 16;
  }
  return int64_t{1} << 20;  // widths
}

}  // namespace twinforge
