// What each primitive means: one function per kind, by the plainest loop.
//
// Everything is computed in f64 from operands that were rounded to their dtypes, and rounded once to the
// result's.
#ifndef TWINFORGE_EVAL_KERNELS_H_
#define TWINFORGE_EVAL_KERNELS_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "eval/tensor.h"
#include "ir/graph.h"

namespace twinforge {

// The value of `node`, a primitive of `graph` that is neither input nor param, with the result's extents
// `shape`. TF1901 where an index is out of range; TF1903 for what has no evaluation (opaque).
absl::StatusOr<Tensor> EvalPrimitive(const Graph& graph, const Node& node, absl::Span<const Tensor> operands,
                                     const Shape& shape);

// ---- the kinds, by family. Results are not yet rounded.

std::vector<double> EvalElementwise(const Node& node, absl::Span<const Tensor> x);
// Constant, iota, dimension_size.
std::vector<double> EvalSource(const Node& node, absl::Span<const Tensor> x, const Shape& shape);
// Broadcast, reshape, transpose, slice, concat, pad, reverse.
std::vector<double> EvalShape(const Graph& graph, const Node& node, absl::Span<const Tensor> x,
                              const Shape& shape);
std::vector<double> EvalReduce(const Node& node, const Tensor& x);
std::vector<double> EvalDot(const Node& node, const Tensor& x, const Tensor& y);
// `limit`: places along the axis that may be named.
absl::StatusOr<std::vector<double>> EvalGather(const Node& node, const Tensor& x, const Tensor& index,
                                               const Axis& axis);
std::vector<double> EvalTopK(const Node& node, const Tensor& x);
std::vector<double> EvalConv(const Node& node, const Tensor& x, const Tensor& kernel, const Shape& shape);
std::vector<double> EvalScan(const Node& node, absl::Span<const Tensor> x);

// The place of the axis that a slice names: the first of that name in its operand's type.
size_t SlicedAxis(const Graph& graph, const Node& node);

// Elements in[offset + sum of i_k * strides[k]] for each index i within `shape`, in row-major order.
std::vector<double> Walk(const double* in, int64_t offset, absl::Span<const int64_t> strides,
                         const Shape& shape);

}  // namespace twinforge

#endif  // TWINFORGE_EVAL_KERNELS_H_
