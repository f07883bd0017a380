// Runs a model on given inputs, node by node, as plainly as the operators are written (kernels/).
//
// A value lives until its last use. Subgraphs see the values around them; functions see only their inputs and
// attributes. Work is bounded: a tensor's size, the nodes that run (loops may never end) and the
// multiplications (TF1902).
#ifndef TWINFORGE_ONNX_RUN_H_
#define TWINFORGE_ONNX_RUN_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "onnx/model.h"
#include "onnx/value.h"

namespace twinforge {

// What a run may take; beyond it TF1902.
struct OnnxLimits {
  int64_t elements = int64_t{1} << 27;  // of one tensor
  int64_t nodes = 20000000;             // that run, loops counted out
  double work = 2e11;                   // multiplications: some minutes
};

// Attributes that a function was called with, by name.
using OnnxAttributes = absl::flat_hash_map<std::string, const ::onnx::AttributeProto*>;

// The values of one graph while it runs.
struct OnnxFrame {
  const OnnxGraph* graph = nullptr;
  std::vector<OnnxValue> slots;
  const OnnxAttributes* attributes = nullptr;  // of the function around, if any
};

// An attribute of a node, through its reference to the function's where it is one; nullptr where absent.
const ::onnx::AttributeProto* FindAttribute(const OnnxNode& node, const OnnxAttributes* around,
                                            absl::string_view name);

class OnnxRunner {
 public:
  explicit OnnxRunner(const OnnxModel& model, const OnnxLimits& limits = {})
      : model_(model), limits_(limits) {}

  // By the names of the graph's inputs; an initializer's input may be left out. Outputs in the graph's order.
  absl::StatusOr<std::vector<OnnxValue>> Run(const absl::flat_hash_map<std::string, OnnxValue>& inputs);

  // For kernels.
  absl::StatusOr<std::vector<OnnxValue>> RunSubgraph(const OnnxGraph& graph, std::vector<OnnxValue> inputs,
                                                     OnnxFrame& around);
  const OnnxModel& model() const { return model_; }
  const OnnxLimits& limits() const { return limits_; }
  bool Spend(double work);
  // One node of `frame`'s graph, on the values that its slots hold.
  absl::Status RunNode(const OnnxNode& node, OnnxFrame& frame);

 private:
  absl::StatusOr<OnnxValue> InitialValue(const OnnxGraph& graph, const OnnxInitializer& initializer);
  absl::Status SetInitializers(OnnxFrame& frame, bool keep);
  absl::StatusOr<std::vector<OnnxValue>> RunFrame(OnnxFrame& frame);
  absl::Status CallFunction(const OnnxNode& node, std::vector<OnnxValue> inputs, OnnxFrame& frame);
  absl::Status CallKernel(const OnnxNode& node, std::vector<OnnxValue> inputs, OnnxFrame& frame);

  const OnnxModel& model_;
  const OnnxLimits limits_;
  absl::flat_hash_map<const OnnxInitializer*, OnnxValue> kept_;  // of graphs that may run again
  double work_ = 0;
  int64_t nodes_ = 0;
  int depth_ = 0;
};

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_RUN_H_
