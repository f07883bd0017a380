// What a family makes of one config: the nodes of the graph with the types of their parameters, before it is
// known where any byte comes from.
//
//   family file + config.json  ->  Blueprint  ->  layouts (names)  +  graph (programs)
//
// Layouts are expanded over the blueprint's roles, so a tensor's presence is decided in one place: a bias has
// a name in the layout because the blueprint has the bias.
#ifndef TWINFORGE_IMPORTERS_BLUEPRINT_H_
#define TWINFORGE_IMPORTERS_BLUEPRINT_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "importers/config_view.h"
#include "importers/family.pb.h"
#include "ir/op.h"
#include "ir/ops.pb.h"
#include "ir/type.h"

namespace twinforge {

struct PlannedNode {
  OpKind op = OpKind::kAdd;
  std::string path;
  std::vector<int> operands;  // positions in Blueprint::nodes; -1: the tokens
  OpAttrs attrs;
  std::vector<std::pair<std::string, std::string>> params;  // slot, role
};

struct Blueprint {
  std::string architecture;
  int64_t layers = 0;
  std::map<std::string, int64_t> dims;
  std::vector<PlannedNode> nodes;
  std::vector<std::pair<std::string, int>> outputs;
  std::map<std::string, ParamType> types;  // by role; dtype is the config's
};

absl::StatusOr<Blueprint> MakeBlueprint(const FamilySpec& family, const ConfigView& config, DType dtype);

}  // namespace twinforge

#endif  // TWINFORGE_IMPORTERS_BLUEPRINT_H_
