// What a plain runtime derives from its config rather than reads: softmax scales.
//
// Importers set a node's scale from these functions and exporters compare with them, so
// that the two cannot disagree about when a config key must say the scale.
#ifndef TWINFORGE_IR_ROPE_H_
#define TWINFORGE_IR_ROPE_H_

#include <cstdint>

#include "ir/graph.h"

namespace twinforge {

// head_dim^-0.5.
double DefaultScale(int64_t head_dim);

// Latent attention: qk_dim^-0.5 with qk_dim = nope_dim + rope_dim, times mscale squared where the scaling has
// a factor above 1 and mscale_all_dim: mscale = 0.1 mscale_all_dim ln(factor) + 1 (DeepSeek-V3's own code).
double DefaultLatentScale(int64_t qk_dim, const RopeScaling& scaling);

// The same for a node of a graph, from the physical sizes of its parameters.
// REQUIRES: node.op is kAttention or kLatentAttention.
double DefaultScale(const Graph& graph, const Node& node);

}  // namespace twinforge

#endif  // TWINFORGE_IR_ROPE_H_
