// A range of a graph's nodes as a module: a public function @main, and the functions of its blocks. Private to
// this folder; stablehlo.h is what others include.
#ifndef TWINFORGE_REFERENCE_STABLEHLO_MODULE_H_
#define TWINFORGE_REFERENCE_STABLEHLO_MODULE_H_

#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "reference/stablehlo/block.h"
#include "reference/stablehlo/device_mesh.h"
#include "reference/stablehlo/stablehlo.h"
#include "reference/stablehlo/weight_argument.h"

namespace twinforge {

struct NodeRange {
  NodeId first = 0;
  NodeId end = 0;      // after the last
  bool whole = true;   // all of a model: stacked layers are arguments whole, and each finds its own in them
};

class ModuleWriter {
 public:
  // All outlive it. `graph` is what is computed; `weights` are those of the graph as stored.
  ModuleWriter(const Graph& graph, const WeightArguments& weights, const StableHloSizes& sizes);

  // Once.
  absl::StatusOr<StableHloModule> Write(const NodeRange& range, const std::string& name);

 private:
  bool Within(NodeId id) const { return id >= range_.first && id < range_.end; }
  absl::Status Append(const Node& node);
  absl::Status AppendComposite(const Node& node);
  absl::StatusOr<MlirValue> ArgumentOf(const Node& node, const BlockArgument& argument);
  absl::StatusOr<MlirValue> ValueOf(NodeId id);
  absl::StatusOr<MlirValue> Input(const std::string& name, const Type& type);
  MlirValue Weight(const Param& param);
  // i32 [batch, seq]: the place of each token in its sequence, 0 for padding.
  MlirValue Positions();
  MlirValue Position();
  MlirValue Starts();
  absl::StatusOr<MlirValue> Cache(const Node& node, const StateSlot& slot);
  // The argument of that kind and name, declared where it is first asked for.
  MlirValue Declare(StableHloArgument argument);
  MlirValue DeclareInput(const std::string& name, const MlirType& type);
  void AppendResults();
  std::string Finished(const StableHloModule& module) const;

  const Graph& graph_;
  const WeightArguments& weights_;
  const StableHloSizes sizes_;
  bool ragged_ = true;
  Blocks blocks_;
  NodeRange range_;
  int64_t hidden_ = 0;  // values of other parts that come in
  DeviceMesh mesh_;
  MlirBody text_;
  std::map<NodeId, MlirValue> values_;
  struct Declared {
    StableHloArgument argument;
    MlirValue value;
  };
  std::vector<Declared> declared_;
  absl::flat_hash_map<std::string, size_t> by_name_;  // kind and name of an argument -> its place in declared_
  absl::flat_hash_set<std::string> taken_;            // MLIR names
  std::map<std::string, MlirValue> units_;            // weights, by name of the unit
  std::vector<StableHloResult> results_;
  std::vector<std::string> returned_;
  struct Remembered {
    std::string name;
    MlirValue value;
    std::vector<std::string> split;
  };
  std::vector<Remembered> remembered_;
};

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_STABLEHLO_MODULE_H_
