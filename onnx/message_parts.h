// Where in a model's message tensors may lie: the eight kinds of message that are one or lead to one.
//
// The schema is compiled without reflection, so the ways down are spelled out here, once for bytes
// (PartBelow), once for messages (WithPart), once for all tensors of a model (ForEachTensor); a test holds
// them together.
#ifndef TWINFORGE_ONNX_MESSAGE_PARTS_H_
#define TWINFORGE_ONNX_MESSAGE_PARTS_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "onnx/onnx-ml.pb.h"

namespace twinforge {

enum class Part : uint8_t {
  kOther,
  kModel,
  kTraining,
  kFunction,
  kGraph,
  kNode,
  kAttribute,
  kSparse,
  kTensor
};

// What the submessage in field `number` of a `part` is; kOther where it leads to no tensor.
Part PartBelow(Part part, uint32_t number);

// Calls `enter` with that submessage: the one of a singular field, a new one of a repeated field.
// REQUIRES: PartBelow is not kOther.
template <typename Enter>
auto WithPart(::onnx::ModelProto& model, uint32_t number, Enter&& enter) {
  if (number == ::onnx::ModelProto::kGraphFieldNumber) return enter(*model.mutable_graph());
  if (number == ::onnx::ModelProto::kTrainingInfoFieldNumber) return enter(*model.add_training_info());
  return enter(*model.add_functions());
}
template <typename Enter>
auto WithPart(::onnx::TrainingInfoProto& training, uint32_t number, Enter&& enter) {
  const bool first = number == ::onnx::TrainingInfoProto::kInitializationFieldNumber;
  return enter(first ? *training.mutable_initialization() : *training.mutable_algorithm());
}
template <typename Enter>
auto WithPart(::onnx::FunctionProto& function, uint32_t number, Enter&& enter) {
  if (number == ::onnx::FunctionProto::kNodeFieldNumber) return enter(*function.add_node());
  return enter(*function.add_attribute_proto());
}
template <typename Enter>
auto WithPart(::onnx::GraphProto& graph, uint32_t number, Enter&& enter) {
  if (number == ::onnx::GraphProto::kNodeFieldNumber) return enter(*graph.add_node());
  if (number == ::onnx::GraphProto::kInitializerFieldNumber) return enter(*graph.add_initializer());
  return enter(*graph.add_sparse_initializer());
}
template <typename Enter>
auto WithPart(::onnx::NodeProto& node, uint32_t number, Enter&& enter) {
  return enter(*node.add_attribute());
}
template <typename Enter>
auto WithPart(::onnx::AttributeProto& attribute, uint32_t number, Enter&& enter) {
  using Attribute = ::onnx::AttributeProto;
  if (number == Attribute::kTFieldNumber) return enter(*attribute.mutable_t());
  if (number == Attribute::kGFieldNumber) return enter(*attribute.mutable_g());
  if (number == Attribute::kTensorsFieldNumber) return enter(*attribute.add_tensors());
  if (number == Attribute::kGraphsFieldNumber) return enter(*attribute.add_graphs());
  if (number == Attribute::kSparseTensorFieldNumber) return enter(*attribute.mutable_sparse_tensor());
  return enter(*attribute.add_sparse_tensors());
}
template <typename Enter>
auto WithPart(::onnx::SparseTensorProto& sparse, uint32_t number, Enter&& enter) {
  const bool values = number == ::onnx::SparseTensorProto::kValuesFieldNumber;
  return enter(values ? *sparse.mutable_values() : *sparse.mutable_indices());
}

constexpr Part PartOf(const ::onnx::ModelProto*) { return Part::kModel; }
constexpr Part PartOf(const ::onnx::TrainingInfoProto*) { return Part::kTraining; }
constexpr Part PartOf(const ::onnx::FunctionProto*) { return Part::kFunction; }
constexpr Part PartOf(const ::onnx::GraphProto*) { return Part::kGraph; }
constexpr Part PartOf(const ::onnx::NodeProto*) { return Part::kNode; }
constexpr Part PartOf(const ::onnx::AttributeProto*) { return Part::kAttribute; }
constexpr Part PartOf(const ::onnx::SparseTensorProto*) { return Part::kSparse; }
constexpr Part PartOf(const ::onnx::TensorProto*) { return Part::kTensor; }

// Calls `visit` for every tensor of `model`, once, in the order in which protobuf writes them: initializers,
// values and places of sparse ones, attributes, those of functions, subgraphs and training. One function for
// all of them, so that no rule holds for initializers alone.
void ForEachTensor(::onnx::ModelProto& model, absl::FunctionRef<void(::onnx::TensorProto&)> visit);
void ForEachTensor(const ::onnx::ModelProto& model,
                   absl::FunctionRef<void(const ::onnx::TensorProto&)> visit);

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_MESSAGE_PARTS_H_
