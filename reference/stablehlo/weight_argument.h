// Weights as arguments: each as its tensor lies in a twin's file, and read there without being turned around.
//
//   attn.q, attn.k, attn.v  bundled, out_in      one argument tensor<6144x4096xbf16>, one dot_general with
//   it,
//                                                whose result is cut in three
//   mlp.down                in_out               contracted along its first axis
//
// The compiler gives an argument the layout that its uses ask for; a transpose of ours would hide the use.
#ifndef TWINFORGE_REFERENCE_STABLEHLO_WEIGHT_ARGUMENT_H_
#define TWINFORGE_REFERENCE_STABLEHLO_WEIGHT_ARGUMENT_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ir/graph.h"
#include "ir/layout.h"
#include "reference/kept_groups.h"
#include "reference/stablehlo/mlir_body.h"

namespace twinforge {

// A parameter in its stored tensor: kernels [lead.., first, second], vectors [lead.., places].
struct StoredWeight {
  const Graph* graph = nullptr;
  const Param* param = nullptr;
  const Bundle* bundle = nullptr;  // null: it lies alone
  MlirValue stored;
};

// The whole parameter as its type says it, [lead.., in.., out..], in `dtype`.
MlirValue WholeWeight(MlirBody& body, const StoredWeight& weight, DType dtype);

// x times the weight in x's dtype, contracted at the given axes of x and of the parameter's type: as the dot
// of the same attributes with the whole weight. One product for all members of a bundle.
MlirValue WeightProduct(MlirBody& body, const MlirValue& x, const StoredWeight& weight, const DotAttrs& dot);

// Rows of a table at `index`, in `dtype`: as the gather along axis 0 of the whole weight.
MlirValue WeightRows(MlirBody& body, const StoredWeight& weight, const MlirValue& index, DType dtype);

// Which stored tensors a graph's parameters are in.
class WeightArguments {
 public:
  // `kept`: weights of which few are kept, beside those whose programs show it.
  explicit WeightArguments(const Graph& graph, std::map<std::string, KeptGroups> kept = {});

  const std::vector<TwinTensor>& tensors() const { return tensors_; }

  // What lies together without its layer: the bundle that holds the role, or the role.
  struct Unit {
    std::string name;
    size_t tensor = 0;
    int64_t layer = -1;  // in the tensor of a stack; -1: it is the tensor
    MlirType type;
  };
  Unit UnitOf(const std::string& role) const;
  std::optional<KeptGroups> KeptIn(const Param& param) const;

 private:
  const Graph& graph_;
  std::map<std::string, KeptGroups> kept_;
  std::vector<TwinTensor> tensors_;
  absl::flat_hash_map<std::string, size_t> tensor_of_;  // by role
  absl::flat_hash_map<std::string, int64_t> layer_of_;  // by parameter or bundle in a stack
};

// The axes of the stored tensor that `param` lies in (its own, or its bundle's), without a stack's: each a
// product of axes of its type, outermost first.
std::vector<std::vector<ParamAxis>> StoredAxes(const Param& param);

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_STABLEHLO_WEIGHT_ARGUMENT_H_
