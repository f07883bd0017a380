// Gives a blueprint its bytes: the graph, with programs, storage and bundles.
#ifndef TWINFORGE_IMPORTERS_BUILD_GRAPH_H_
#define TWINFORGE_IMPORTERS_BUILD_GRAPH_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "importers/blueprint.h"
#include "importers/compile_layout.h"
#include "ir/graph.h"

namespace twinforge {

// `programs` has one for each role of the plan, of the type that the plan states.
absl::StatusOr<Graph> BuildGraph(const std::string& name, Blueprint plan, const CompiledLayout& layout,
                                 std::map<std::string, WeightPtr> programs);

}  // namespace twinforge

#endif  // TWINFORGE_IMPORTERS_BUILD_GRAPH_H_
