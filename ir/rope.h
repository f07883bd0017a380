// Numbers of rotary embeddings and softmax that a plain runtime derives from its config rather than reads.
//
// Importers set a node's scale from these functions and exporters compare with them, so that the two cannot
// disagree about when a config key must say the scale; decompositions take their angles from here.
#ifndef TWINFORGE_IR_ROPE_H_
#define TWINFORGE_IR_ROPE_H_

#include <cstdint>
#include <vector>

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

// Which of LONGROPE's two factor lists applies. Other scalings have one set of frequencies.
enum class RopeLength : uint8_t { kTrained, kBeyond };

// Radians per position of each of the rotary_dim / 2 pairs: theta^(-2i / rotary_dim), scaled as transformers'
// modeling_rope_utils does. DYNAMIC depends on the length and is not here: its frequencies at the trained
// length.
std::vector<double> RopeFrequencies(const Rope& rope, RopeLength length);

// What cosines and sines are multiplied by: YARN's and LONGROPE's attention factor, else 1.
double RopeMagnitude(const Rope& rope);

}  // namespace twinforge

#endif  // TWINFORGE_IR_ROPE_H_
