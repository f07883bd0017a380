// Weights in an ONNX graph: each an initializer as its tensor lies in a twin's file, multiplied as it lies.
//
//   attn.q, attn.k, attn.v  bundled, out_in    one Gemm with transB, whose result is cut in three
//   mlp.down                in_out             MatMul
//   moe.up                  out_in             one Gemm with the experts' matrices under each other
#ifndef TWINFORGE_REFERENCE_ONNX_WEIGHT_TENSOR_H_
#define TWINFORGE_REFERENCE_ONNX_WEIGHT_TENSOR_H_

#include <string>

#include "ir/graph.h"
#include "reference/onnx/laid_value.h"

namespace twinforge {

// A parameter in its stored tensor: kernels [lead.., first, second], vectors [lead.., places].
struct WeightTensor {
  const Graph* graph = nullptr;
  const Param* param = nullptr;
  const Bundle* bundle = nullptr;  // null: it lies alone
  std::string name;
  DType dtype = DType::kF32;  // as stored
  Shape shape;                // without a stack's layers
};

// The whole parameter as its type says it, in `dtype`.
LaidValue WholeTensor(OnnxBody& body, const WeightTensor& weight, DType dtype);

// x times the weight in x's dtype, as the dot of the same attributes with the whole weight.
LaidValue TensorProduct(OnnxBody& body, const LaidValue& x, const WeightTensor& weight, const DotAttrs& dot,
                        const Type& type);

// Rows of a table at `index`, in `dtype`.
LaidValue TensorRows(OnnxBody& body, const WeightTensor& weight, const LaidValue& index, DType dtype,
                     const Type& type);

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_ONNX_WEIGHT_TENSOR_H_
