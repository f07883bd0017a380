#include "onnx/message_parts.h"

#include "onnx/onnx-ml.pb.h"

namespace twinforge {
namespace {

using Visit = absl::FunctionRef<void(::onnx::TensorProto&)>;

void InGraph(::onnx::GraphProto& graph, Visit visit);

void InSparse(::onnx::SparseTensorProto& sparse, Visit visit) {
  if (sparse.has_values()) visit(*sparse.mutable_values());
  if (sparse.has_indices()) visit(*sparse.mutable_indices());
}

void InAttribute(::onnx::AttributeProto& attribute, Visit visit) {
  if (attribute.has_t()) visit(*attribute.mutable_t());
  if (attribute.has_g()) InGraph(*attribute.mutable_g(), visit);
  for (auto& tensor : *attribute.mutable_tensors()) visit(tensor);
  for (auto& graph : *attribute.mutable_graphs()) InGraph(graph, visit);
  if (attribute.has_sparse_tensor()) InSparse(*attribute.mutable_sparse_tensor(), visit);
  for (auto& sparse : *attribute.mutable_sparse_tensors()) InSparse(sparse, visit);
}

void InNode(::onnx::NodeProto& node, Visit visit) {
  for (auto& attribute : *node.mutable_attribute()) InAttribute(attribute, visit);
}

void InGraph(::onnx::GraphProto& graph, Visit visit) {
  for (auto& node : *graph.mutable_node()) InNode(node, visit);
  for (auto& tensor : *graph.mutable_initializer()) visit(tensor);
  for (auto& sparse : *graph.mutable_sparse_initializer()) InSparse(sparse, visit);
}

}  // namespace

Part PartBelow(Part part, uint32_t number) {
  struct Way {
    Part from;
    uint32_t number;
    Part to;
  };
  static constexpr Way kWays[] = {
      {Part::kModel, ::onnx::ModelProto::kGraphFieldNumber, Part::kGraph},
      {Part::kModel, ::onnx::ModelProto::kTrainingInfoFieldNumber, Part::kTraining},
      {Part::kModel, ::onnx::ModelProto::kFunctionsFieldNumber, Part::kFunction},
      {Part::kTraining, ::onnx::TrainingInfoProto::kInitializationFieldNumber, Part::kGraph},
      {Part::kTraining, ::onnx::TrainingInfoProto::kAlgorithmFieldNumber, Part::kGraph},
      {Part::kFunction, ::onnx::FunctionProto::kNodeFieldNumber, Part::kNode},
      {Part::kFunction, ::onnx::FunctionProto::kAttributeProtoFieldNumber, Part::kAttribute},
      {Part::kGraph, ::onnx::GraphProto::kNodeFieldNumber, Part::kNode},
      {Part::kGraph, ::onnx::GraphProto::kInitializerFieldNumber, Part::kTensor},
      {Part::kGraph, ::onnx::GraphProto::kSparseInitializerFieldNumber, Part::kSparse},
      {Part::kNode, ::onnx::NodeProto::kAttributeFieldNumber, Part::kAttribute},
      {Part::kAttribute, ::onnx::AttributeProto::kTFieldNumber, Part::kTensor},
      {Part::kAttribute, ::onnx::AttributeProto::kGFieldNumber, Part::kGraph},
      {Part::kAttribute, ::onnx::AttributeProto::kTensorsFieldNumber, Part::kTensor},
      {Part::kAttribute, ::onnx::AttributeProto::kGraphsFieldNumber, Part::kGraph},
      {Part::kAttribute, ::onnx::AttributeProto::kSparseTensorFieldNumber, Part::kSparse},
      {Part::kAttribute, ::onnx::AttributeProto::kSparseTensorsFieldNumber, Part::kSparse},
      {Part::kSparse, ::onnx::SparseTensorProto::kValuesFieldNumber, Part::kTensor},
      {Part::kSparse, ::onnx::SparseTensorProto::kIndicesFieldNumber, Part::kTensor},
  };
  for (const Way& way : kWays) {
    if (way.from == part && way.number == number) return way.to;
  }
  return Part::kOther;
}

void ForEachTensor(::onnx::ModelProto& model, Visit visit) {
  if (model.has_graph()) InGraph(*model.mutable_graph(), visit);
  for (auto& training : *model.mutable_training_info()) {
    if (training.has_initialization()) InGraph(*training.mutable_initialization(), visit);
    if (training.has_algorithm()) InGraph(*training.mutable_algorithm(), visit);
  }
  for (auto& function : *model.mutable_functions()) {
    for (auto& node : *function.mutable_node()) InNode(node, visit);
    for (auto& attribute : *function.mutable_attribute_proto()) InAttribute(attribute, visit);
  }
}

void ForEachTensor(const ::onnx::ModelProto& model,
                   absl::FunctionRef<void(const ::onnx::TensorProto&)> visit) {
  // Nothing is changed: mutable_ accessors of fields that are there return what the others do.
  ForEachTensor(const_cast<::onnx::ModelProto&>(model), [&](::onnx::TensorProto& tensor) { visit(tensor); });
}

}  // namespace twinforge
