// The kernels' table: which function is the meaning of which operator.
//
// A kernel file declares its rows; kernels are plain functions of an OpCall. A name has one row: where an
// operator changed its meaning between versions, the kernel asks for c.opset().
#ifndef TWINFORGE_ONNX_KERNELS_KERNEL_H_
#define TWINFORGE_ONNX_KERNELS_KERNEL_H_

#include "absl/types/span.h"
#include "onnx/op_call.h"

namespace twinforge {

using OnnxKernel = void (*)(OpCall& call);

struct KernelRow {
  absl::string_view name;
  OnnxKernel kernel;
  bool any_value = false;  // takes sequences and optionals too
  absl::string_view domain = "";
  int min_inputs = 0;  // of operators that operators.def does not have
};

// nullptr where the operator has no meaning here.
const KernelRow* FindKernel(absl::string_view domain, absl::string_view name);

// One per file of kernels.
absl::Span<const KernelRow> UnaryKernels();
absl::Span<const KernelRow> BinaryKernels();
absl::Span<const KernelRow> CastKernels();
absl::Span<const KernelRow> ShapeKernels();
absl::Span<const KernelRow> SliceKernels();
absl::Span<const KernelRow> GatherKernels();
absl::Span<const KernelRow> ReduceKernels();
absl::Span<const KernelRow> SelectKernels();
absl::Span<const KernelRow> MatmulKernels();
absl::Span<const KernelRow> NormKernels();
absl::Span<const KernelRow> AttentionKernels();
absl::Span<const KernelRow> QuantiseKernels();
absl::Span<const KernelRow> ControlKernels();
absl::Span<const KernelRow> ConvKernels();
absl::Span<const KernelRow> PoolKernels();
absl::Span<const KernelRow> ResizeKernels();
absl::Span<const KernelRow> ImageKernels();
absl::Span<const KernelRow> LossKernels();
absl::Span<const KernelRow> RecurrentKernels();
absl::Span<const KernelRow> SignalKernels();
absl::Span<const KernelRow> TextKernels();
absl::Span<const KernelRow> ClassicKernels();
absl::Span<const KernelRow> MixerKernels();
absl::Span<const KernelRow> ContribNormKernels();
absl::Span<const KernelRow> ContribAttentionKernels();
absl::Span<const KernelRow> ContribQuantisedKernels();

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_KERNELS_KERNEL_H_
