// Where elements lie: broadcasting, axes and loops over all places of a shape.
#ifndef TWINFORGE_ONNX_KERNELS_PLACES_H_
#define TWINFORGE_ONNX_KERNELS_PLACES_H_

#include <optional>
#include <vector>

#include "onnx/op_call.h"
#include "onnx/tensor.h"

namespace twinforge {

// The shape to which both broadcast, by numpy's rule; nullopt where they do not.
std::optional<Shape> BroadcastShape(const Shape& a, const Shape& b);
// The same for all inputs of a call; a failure where they do not, or where the result is too large.
Shape BroadcastInputs(OpCall& c, int first, int last);

// For each place of `to`, in order, the element of a tensor of shape `from` that broadcasts there.
// REQUIRES: `from` broadcasts to `to`.
std::vector<int64_t> BroadcastPlaces(const Shape& from, const Shape& to);
bool BroadcastsTo(const Shape& from, const Shape& to);

// For each place of `shape`, in order: offset + sum of index * stride.
std::vector<int64_t> StridedPlaces(const Shape& shape, const std::vector<int64_t>& strides, int64_t offset);

// Advances `index` to the next place of `shape`; false after the last.
bool NextPlace(const Shape& shape, std::vector<int64_t>& index);

// A shape as seen from one axis: `outer` x `size` x `inner`.
struct AxisView {
  int64_t outer = 1, size = 1, inner = 1;
};
AxisView ViewAt(const Shape& shape, int64_t axis);

OnnxTensor Permuted(const OnnxTensor& x, const std::vector<int64_t>& permutation);

// Tensors of one type, one after the other along `axis`; a failure of the call where they do not fit.
OnnxTensor Joined(OpCall& c, const std::vector<OnnxTensor>& parts, int64_t axis);

// Axes of an attribute or input, made non-negative, sorted, each once; failures are the call's.
std::vector<int64_t> NormalAxes(OpCall& c, const std::vector<int64_t>& axes, int64_t rank);

// [0, 1, ..., count)
std::vector<int64_t> Counted(int64_t count);

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_KERNELS_PLACES_H_
