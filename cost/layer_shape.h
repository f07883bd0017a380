// A graph's layer in the words of the compiled tables (compiled_layer.h).
#ifndef TWINFORGE_COST_LAYER_SHAPE_H_
#define TWINFORGE_COST_LAYER_SHAPE_H_

#include <cstdint>
#include <optional>

#include "cost/compiled_layer.h"
#include "ir/graph.h"

namespace twinforge {

// Sizes of the first layer that has heads, and of the first feed-forward after it. Empty: the graph has no
// attention with keys and values of its own (latent attention, state spaces), or no feed-forward.
std::optional<CompiledShape> LayerShapeOf(const Graph& graph);

// Of its head alone: d_model and vocab. Empty: it has none.
std::optional<CompiledShape> HeadShapeOf(const Graph& graph);

// Experts in a group; 1 where none are grouped.
int64_t ExpertGroupOf(const Graph& graph);

}  // namespace twinforge

#endif  // TWINFORGE_COST_LAYER_SHAPE_H_
