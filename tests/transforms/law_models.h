// What the laws are held over: the small models, the same written out, and what graphs do to parameters.
#ifndef TWINFORGE_TESTS_TRANSFORMS_LAW_MODELS_H_
#define TWINFORGE_TESTS_TRANSFORMS_LAW_MODELS_H_

#include <optional>
#include <string>
#include <vector>

#include "tests/transforms/small_models.h"

namespace twinforge {

struct LawModel {
  std::string name;
  Graph graph;
  std::optional<Graph> naive;  // the same function in composites; none: `graph` itself says it
};

// Each small model. With 5 heads, also each written out, each written out in part, and some that work on
// their parameters: what a transform does to primitives depends on no number.
std::vector<LawModel> LawModels(const SmallSizes& sizes);

// Whether the graph has an op that the naive model has no formula for.
bool HoldsPrimitives(const Graph& graph);

}  // namespace twinforge

#endif  // TWINFORGE_TESTS_TRANSFORMS_LAW_MODELS_H_
