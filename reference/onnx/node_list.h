// The nodes and constants of an ONNX graph while it is written: what is said twice is said once, and what
// nobody needs is left out.
//
//   nodes.At("layers.0.attn.dot_0");
//   const std::string y = nodes.Op("MatMul", {x, w});        // "layers.0.attn.dot_0/MatMul"
//   nodes.Op("MatMul", {x, w}) == y                          // from whatever layer it is asked
#ifndef TWINFORGE_REFERENCE_ONNX_NODE_LIST_H_
#define TWINFORGE_REFERENCE_ONNX_NODE_LIST_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "onnx/onnx-ml.pb.h"
#include "weights/dtype.h"
#include "weights/shape.h"

namespace twinforge {

using OnnxAttributeList = std::vector<::onnx::AttributeProto>;

::onnx::AttributeProto OnnxAttribute(absl::string_view name, int64_t value);
::onnx::AttributeProto OnnxAttribute(absl::string_view name, float value);
::onnx::AttributeProto OnnxAttribute(absl::string_view name, const std::vector<int64_t>& values);

// TensorProto.DataType of a stored tensor; 0 where the standard has none (6-bit types).
int32_t OnnxTypeOfTensor(DType dtype);
// Of a value: places and tokens, which are i32 in the house, are INT64 as the standard counts them.
int32_t OnnxTypeOfValue(DType dtype);

class OnnxNodes {
 public:
  // No node or constant is called so.
  void Reserve(const std::string& name) { taken_.insert(name); }
  // Names of what follows begin with `path`.
  void At(std::string path) { path_ = std::move(path); }

  // The result's name.
  std::string Op(absl::string_view op, const std::vector<std::string>& inputs,
                 OnnxAttributeList attributes = {});
  // Of an operator with several results, the one at `take` of `count`.
  std::string OpOf(absl::string_view op, const std::vector<std::string>& inputs, OnnxAttributeList attributes,
                   int count, int take);

  std::string Integers(const std::vector<int64_t>& values);  // INT64, of rank 1
  std::string Number(DType dtype, double value);             // of rank 0, of a value's type
  // One value for each element, row-major.
  std::string Numbers(DType dtype, const Shape& shape, const std::vector<double>& values);

  // Puts what `outputs` (name here, name in the model) need into `graph`, in order, and returns the names
  // that are taken from elsewhere: inputs and weights.
  absl::flat_hash_set<std::string> WriteInto(const std::vector<std::pair<std::string, std::string>>& outputs,
                                             ::onnx::GraphProto& graph) const;

 private:
  std::string NewName(const std::string& stem);
  std::string Constant(::onnx::TensorProto tensor);

  std::string path_;
  std::vector<::onnx::NodeProto> nodes_;
  absl::flat_hash_map<std::string, size_t> known_;  // what a node says, without its names -> place in nodes_
  std::vector<::onnx::TensorProto> constants_;      // in the order they were first asked for
  absl::flat_hash_map<std::string, std::string> constant_of_;  // what one says -> name
  absl::flat_hash_set<std::string> taken_;
};

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_ONNX_NODE_LIST_H_
