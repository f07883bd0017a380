// Small graphs for tests of ir/: one op over x [batch, seq, d_model], its parameters read
// through a layout from sources of the shapes that the layout states.
#ifndef TWINFORGE_TESTS_IR_TINY_H_
#define TWINFORGE_TESTS_IR_TINY_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "ir/graph.h"
#include "ir/layout.h"

namespace twinforge {

// "d_model=64 -> heads=4, head_dim=16" as a bf16 parameter type.
ParamType TypeOf(const std::string& axes);

// One tensor of a layout: name, then role and extents per part: {"q", "heads*head_dim d_model"}.
LayoutTensor TensorOf(std::string name, std::vector<std::pair<std::string, std::string>> parts,
                      int64_t join_axis = 0, Bundle::Arrangement arrangement = Bundle::Arrangement::kConcat);
// A run of experts: tensors <name>0<name_end>, <name>1<name_end>, ...
LayoutTensor ExpertsOf(std::string name, std::string name_end, std::string role, std::string extents,
                       int64_t experts);

struct OneOp {
  OpKind op;
  OpAttrs attrs;
  std::vector<std::pair<std::string, std::string>> slots;  // slot -> axes
};

// A graph with the op at path "m"; roles are "m.<slot>" or "m".
struct TinyModel {
  Graph graph;
  StoredTensors stored;  // the layout's tensors as sources
};
TinyModel TinyOf(const OneOp& op, const Layout& layout, std::vector<Bundle> bundles = {});

// A llama of one layer: embedding, attention, gated mlp, norms, tied or free head.
OpAttrs AttentionOf(int64_t head_dim, double theta);
Graph TinyLlama(bool tied);
Layout LlamaLayout();
// The config that says TinyLlama.
const char* LlamaConfig(bool tied);

}  // namespace twinforge

#endif  // TWINFORGE_TESTS_IR_TINY_H_
