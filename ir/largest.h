// The largest size that an axis, or the dim of a family that sizes it, may have.
//
// Importers refuse a config beyond it and transforms refuse to pad beyond it, so that whatever is written can
// be read again. A config must not choose how much time and memory are taken before any tensor is seen: these
// are tens of times what published models have, and steps that look at every layer, head or channel are still
// quick at them.
#ifndef TWINFORGE_IR_LARGEST_H_
#define TWINFORGE_IR_LARGEST_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace twinforge {

int64_t LargestSize(absl::string_view axis);

}  // namespace twinforge

#endif  // TWINFORGE_IR_LARGEST_H_
