// Values of the house as tensors of an ONNX graph: a value that repeats along an axis is a tensor without
// that axis, and a transposed one is the tensor as it lay before, until somebody needs it otherwise.
//
//   f32[batch, seq, d_model=64]   broadcast from a vector    tensor [64], place {-1, -1, 0}
//   f32[batch, past, kv, width]   a cache                    tensor [batch, kv, past, width], place {0, 2, 1,
//   3}
//
// Elementwise operators then broadcast as ONNX does, and caches are never turned around.
#ifndef TWINFORGE_REFERENCE_ONNX_LAID_VALUE_H_
#define TWINFORGE_REFERENCE_ONNX_LAID_VALUE_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "ir/ops.pb.h"
#include "ir/type.h"
#include "reference/onnx/node_list.h"

namespace twinforge {

struct LaidValue {
  std::string name;
  Type type;
  std::vector<int> place;  // of each axis of the type: its axis in the tensor, -1 where the value repeats
};

// A tensor that has the type's axes in their order.
LaidValue LaidInOrder(std::string name, const Type& type);
// One number everywhere.
LaidValue LaidEverywhere(std::string name, const Type& type);

class OnnxBody {
 public:
  // `extent` gives a symbol's size as an INT64 tensor of one element: "seq".
  OnnxBody(OnnxNodes& nodes, int opset, std::function<std::string(const std::string&)> extent)
      : nodes_(nodes), opset_(opset), extent_(std::move(extent)) {}

  OnnxNodes& nodes() { return nodes_; }
  int opset() const { return opset_; }

  // ---- tensors by name
  std::string Transposed(const std::string& x, const std::vector<int64_t>& permutation);
  // `from` and `to` are the tensor's sizes before and after.
  std::string Reshaped(const std::string& x, const std::vector<Dim>& from, const std::vector<Dim>& to);
  std::string Sliced(const std::string& x, int64_t axis, int64_t start, int64_t size);
  std::string Cast(const std::string& x, DType dtype);
  // INT64, of rank 1: the sizes as they are when the model runs.
  std::string Sizes(const std::vector<Dim>& dims);
  std::string Size(const Dim& dim);  // of one element

  // ---- values as tensors
  // The tensor with the type's axes `order`, without leading ones along which it repeats; 1 along the others.
  // REQUIRES: `order` has all axes along which it does not repeat.
  std::string InOrder(const LaidValue& x, absl::Span<const int> order);
  // Written out along all axes, in `order`.
  std::string Full(const LaidValue& x, absl::Span<const int> order);
  std::string Full(const LaidValue& x);

  // ---- values of values; `type` is the result's
  LaidValue Elementwise(absl::string_view op, const std::vector<LaidValue>& xs, const Type& type);
  LaidValue Convert(const LaidValue& x, DType dtype);
  LaidValue Broadcast(const LaidValue& x, const Type& type, absl::Span<const int64_t> axes);
  LaidValue Reshape(const LaidValue& x, const Type& type);
  LaidValue Transpose(const LaidValue& x, absl::Span<const int64_t> permutation);
  LaidValue Slice(const LaidValue& x, int64_t axis, int64_t start, int64_t size, const Type& type);
  LaidValue Reverse(const LaidValue& x, int64_t axis);
  LaidValue Concat(const std::vector<LaidValue>& xs, int64_t axis, const Type& type);
  LaidValue Reduce(ReduceAttrs::Kind kind, const LaidValue& x, absl::Span<const int64_t> axes,
                   const Type& type);
  LaidValue Dot(const LaidValue& x, const LaidValue& y, const DotAttrs& dot, const Type& type);
  LaidValue Gather(const LaidValue& x, const LaidValue& index, int64_t axis, const Type& type);
  LaidValue TopK(const LaidValue& x, int64_t k, const Type& type);
  LaidValue Iota(const Type& type, int64_t axis);
  LaidValue Pad(const LaidValue& x, const PadAttrs& pad, const Type& type);

 private:
  std::string Term(absl::string_view term);

  OnnxNodes& nodes_;
  const int opset_;
  const std::function<std::string(const std::string&)> extent_;
};

std::vector<Dim> DimsOf(const Type& type);

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_ONNX_LAID_VALUE_H_
