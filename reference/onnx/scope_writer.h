// Nodes of a graph as nodes of an ONNX graph: a block is its decomposition (ir/decompose.h), said in place,
// and where ONNX has an operator of the block's very meaning, that operator. Private to this folder.
//
//   rms_norm   opset 23, f32, no padded axis    RMSNormalization
//   layer_norm f32, no padded axis              LayerNormalization
//   rope       opset 23, f32                    RotaryEmbedding, its cosines computed beside it
//   x / sum of exp(w - max w)                   Softmax
//   mixed values, opset 23, f32                 Attention, where no softcap, slope or sink is in it
#ifndef TWINFORGE_REFERENCE_ONNX_SCOPE_WRITER_H_
#define TWINFORGE_REFERENCE_ONNX_SCOPE_WRITER_H_

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/decompose.h"
#include "ir/graph.h"
#include "reference/onnx/laid_value.h"
#include "reference/onnx/weight_tensor.h"

namespace twinforge {

// One graph while it is written: the model's, or a block's decomposition.
struct OnnxScope {
  const Graph& graph;
  std::map<NodeId, LaidValue> values;
  struct WeightRead {
    std::string role;
    DType dtype;
  };
  std::map<NodeId, WeightRead> weights;  // parameters that nobody has looked at yet, and in which type
  NodeId starts = -1;                    // stands for the mask: what is asked of it is asked of that
  std::map<NodeId, NodeId> first_seen;   // min(starts, the query's place) -> the query's place
  struct Shown {
    LaidValue where;  // all conditions so far
    NodeId x = -1;
  };
  std::map<NodeId, Shown> shown;  // x where several conditions hold, one number elsewhere
};

class OnnxScopeWriter {
 public:
  // `tensor_of` gives a role's stored tensor; `mask` is bool [batch, keys], which places hold a token.
  OnnxScopeWriter(OnnxBody& body, std::function<WeightTensor(const std::string& role)> tensor_of,
                  std::optional<LaidValue> mask)
      : body_(body), tensor_of_(std::move(tensor_of)), mask_(std::move(mask)) {}

  // A node that is no input. TF1501, TF1622.
  absl::Status Append(OnnxScope& scope, const Node& node);
  // Every node but inputs, which have their values.
  absl::Status AppendAll(OnnxScope& scope);
  // A value, a weight's written out where something looks at it as a whole.
  LaidValue ValueOf(OnnxScope& scope, NodeId id);
  // An operator for the whole composite, where there is one of its meaning.
  absl::StatusOr<std::optional<LaidValue>> Whole(OnnxScope& scope, const Node& node);

 private:
  bool AppendMaskRead(OnnxScope& scope, const Node& node);
  bool AppendWeightRead(OnnxScope& scope, const Node& node);
  bool AppendHiddenAgain(OnnxScope& scope, const Node& node);
  bool AppendSoftmax(OnnxScope& scope, const Node& node);
  bool AppendAttention(OnnxScope& scope, const Node& node);
  std::string SeenByAll(OnnxScope& scope, const std::vector<NodeId>& broadcasts);
  absl::StatusOr<LaidValue> WrittenOut(OnnxScope& scope, const Node& node);
  LaidValue Norm(OnnxScope& scope, const Node& node, absl::string_view op);
  absl::StatusOr<LaidValue> Rotary(OnnxScope& scope, const Node& node);

  OnnxBody& body_;
  const std::function<WeightTensor(const std::string&)> tensor_of_;
  const std::optional<LaidValue> mask_;
};

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_ONNX_SCOPE_WRITER_H_
