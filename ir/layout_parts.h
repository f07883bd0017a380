// How one part of a stored tensor lies, worked out from a layout and a type: the
// arithmetic that both directions of layout.h share.
#ifndef TWINFORGE_IR_LAYOUT_PARTS_H_
#define TWINFORGE_IR_LAYOUT_PARTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/layout.h"

namespace twinforge {

//   part      q: {{"heads", "head_dim"}, {"d_model"}}
//   type      bf16[d_model=64 -> heads=4, head_dim=16]
//   names     heads, head_dim, d_model       factored, in stored order
//   sizes     4, 16, 64
//   perm      1, 2, 0                         stored axis i is canonical axis perm[i]
//   groups    2, 1                            factored axes per stored extent
struct FactoredPart {
  std::vector<std::string> names;
  Shape sizes;
  std::vector<int64_t> perm;  // canonical axes without `expert` where one expert is picked
  std::vector<int> groups;
  int expert_axis = -1;  // canonical position of `expert` where one is picked
};

// TF1503 where the part does not name each axis of the type once.
absl::StatusOr<FactoredPart> FactorPart(const LayoutPart& part, const ParamType& type);

// The factored parts of a tensor, and its factored shape with the parts joined.
struct FactoredTensor {
  std::vector<FactoredPart> parts;
  Shape joined;
  Shape stored;  // the joined extents, products taken
};

// TF1503 where a part's type is absent, or parts do not lie together.
absl::StatusOr<FactoredTensor> FactorTensor(const LayoutTensor& tensor,
                                            const std::map<std::string, const ParamType*>& types);

// Whether both roles of `tie` are in the graph and share one program, transposed where their axes ask for it.
bool IsTied(const Graph& graph, const Tie& tie);

}  // namespace twinforge

#endif  // TWINFORGE_IR_LAYOUT_PARTS_H_
