// Expands a family's tensor names over a blueprint's roles: the Layouts of one model.
//
//   "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight"  ->  58 runs of 256 tensors
//
// Words in braces are the layer, the expert, and what the layout itself defines. A template whose roles the
// blueprint lacks (a dense layer's experts, a bias that is off) expands to nothing.
#ifndef TWINFORGE_IMPORTERS_COMPILE_LAYOUT_H_
#define TWINFORGE_IMPORTERS_COMPILE_LAYOUT_H_

#include <string>
#include <utility>
#include <vector>

#include "importers/blueprint.h"
#include "importers/config_view.h"
#include "importers/family.pb.h"
#include "ir/layout.h"

namespace twinforge {

struct CompiledLayout {
  Layout layout;
  std::vector<Bundle> bundles;  // that a graph stored so has
};

// The layouts that the form named by `plan.architecture` has, in the family's order; never none.
std::vector<CompiledLayout> CompileLayouts(const FamilySpec& family, const ConfigView& config,
                                           const Blueprint& plan);

}  // namespace twinforge

#endif  // TWINFORGE_IMPORTERS_COMPILE_LAYOUT_H_
