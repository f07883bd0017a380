// Makes weight programs: eleven verbs, and the named constructors that everyone uses.
//
// Every function checks its operands with TWIN_CHECK (an ill-shaped program is our
// bug; importers check a file's shapes before they get here), simplifies by simplify.h
// and returns the one shared object for that program. Thread-safe.
//
//   WeightPtr q = Source("model.layers.0.self_attn.q_proj.weight", DType::kBF16, {64, 64});
//   q = Transpose(Reshape(q, {4, 16, 64}), {2, 0, 1});        // [d_model, heads, head_dim]
//   q = Pad(q, 2, 112);                                       // head_dim 16 -> 128
#ifndef TWINFORGE_WEIGHTS_BUILD_H_
#define TWINFORGE_WEIGHTS_BUILD_H_

#include <string>
#include <vector>

#include "weights/weight.h"

namespace twinforge {

WeightPtr Source(absl::string_view tensor, DType dtype, Shape shape);
// Tensors <prefix><first><suffix>, <prefix><first + 1><suffix>, ... of one shape, along a new first axis.
WeightPtr StackedSources(absl::string_view prefix, int64_t first, int64_t count, absl::string_view suffix,
                         DType dtype, absl::Span<const int64_t> member);
WeightPtr Fill(double value, DType dtype, Shape shape);
WeightPtr Take(WeightPtr x, int64_t axis, IndexMap map, double fill = 0);
WeightPtr Transpose(WeightPtr x, std::vector<int64_t> perm);
WeightPtr Reshape(WeightPtr x, Shape shape);
WeightPtr Concat(int64_t axis, std::vector<WeightPtr> xs);
WeightPtr Cast(WeightPtr x, DType dtype);
WeightPtr Map(MapFn fn, WeightPtr x, WeightPtr y);                      // dtype of x
WeightPtr Contract(WeightPtr a, WeightPtr b);                           // dtype of a
WeightPtr Stat(StatKind kind, WeightPtr x, std::vector<int64_t> axes);  // dtype f64
WeightPtr GroupKeepLargest(WeightPtr x, int64_t axis, int64_t size, int64_t keep);
WeightPtr GroupScale(WeightPtr x, int64_t axis, int64_t size, DType target);
WeightPtr GroupCodes(WeightPtr x, int64_t axis, int64_t size, DType target);

// ---- named constructors, made of the verbs above

WeightPtr Slice(WeightPtr x, int64_t axis, int64_t start, int64_t count);
WeightPtr Pad(WeightPtr x, int64_t axis, int64_t count, double fill = 0);  // at the end
WeightPtr PermuteAxis(WeightPtr x, int64_t axis, absl::Span<const int64_t> order);
WeightPtr RepeatInterleave(WeightPtr x, int64_t axis, int64_t repeats);  // a a b b
WeightPtr Stack(int64_t axis, std::vector<WeightPtr> xs);                // new axis
WeightPtr Index(WeightPtr x, int64_t axis, int64_t at);                  // axis removed
WeightPtr InterleaveToHalves(WeightPtr x, int64_t axis);                 // x0 x2 .. x1 x3 ..
WeightPtr HalvesToInterleave(WeightPtr x, int64_t axis);
// x * constant and x + constant; a factor of 1 and a term of 0 are x itself.
WeightPtr Scale(WeightPtr x, double factor);
WeightPtr AddConstant(WeightPtr x, double term);
// w + factor * (b x a) over matrices [out, in]: LoRA merged (Hu et al. 2021, arXiv:2106.09685).
// Computed in f64 throughout and rounded once, to the dtype of w.
WeightPtr MergeLora(WeightPtr w, WeightPtr a, WeightPtr b, double factor);

}  // namespace twinforge

#endif  // TWINFORGE_WEIGHTS_BUILD_H_
