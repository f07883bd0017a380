// "layers.3.attn": which layer a path lies in.
#ifndef TWINFORGE_PROOF_LAYERS_H_
#define TWINFORGE_PROOF_LAYERS_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace twinforge {

// 3; -1 outside the layers.
int64_t LayerIndex(absl::string_view path);
// "layers.3"; "" outside the layers.
std::string LayerName(absl::string_view path);
// "layers.*.attn": the same for every layer.
std::string WithoutLayer(absl::string_view path);

}  // namespace twinforge

#endif  // TWINFORGE_PROOF_LAYERS_H_
