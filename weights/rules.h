// The rewrite rules, one function per verb: what build.cc makes after its checks.
//
// Each looks at the verb and at the top of its operands, which are simple already, so
// making a node costs about a microsecond however large its program is. The table
// stands in simplify.h. REQUIRES, throughout: the operands fit (pool.h's WhyNot is null).
#ifndef TWINFORGE_WEIGHTS_RULES_H_
#define TWINFORGE_WEIGHTS_RULES_H_

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "weights/weight.h"

namespace twinforge {

WeightPtr SimpleFill(double value, DType dtype, Shape shape);
WeightPtr SimpleTake(const WeightPtr& x, int64_t axis, IndexMap map, double fill);  // simplify_take.cc
WeightPtr SimpleTranspose(const WeightPtr& x, std::vector<int64_t> perm);           // simplify_view.cc
WeightPtr SimpleReshape(const WeightPtr& x, Shape shape);                           // simplify_view.cc
WeightPtr SimpleConcat(int64_t axis, std::vector<WeightPtr> xs);                    // simplify_concat.cc
WeightPtr SimpleCast(const WeightPtr& x, DType dtype);
WeightPtr SimpleMap(MapFn fn, const WeightPtr& x, const WeightPtr& y);
WeightPtr SimpleContract(const WeightPtr& a, const WeightPtr& b);
WeightPtr SimpleStat(StatKind kind, const WeightPtr& x, std::vector<int64_t> axes);
WeightPtr SimpleGroup(GroupFn fn, const WeightPtr& x, int64_t axis, int64_t size, int64_t keep, DType target);

// `rule` of each of many operands, in order; on several threads where there are hundreds (experts).
std::vector<WeightPtr> OfEach(absl::Span<const WeightPtr> xs,
                              absl::FunctionRef<WeightPtr(const WeightPtr&)> rule);

// Whether `w` is x (op) constant, with the constant in canonical form.
bool IsMapByConstant(const WeightPtr& w);

// x (op) y in f64, not rounded.
double ApplyMap(MapFn fn, double x, double y);

// The concat that a reshape of a concat equals, or null: possible where the axis still
// stands apart in the new shape.
WeightPtr ReshapeOperands(const WeightPtr& concat, const Shape& shape);  // simplify_concat.cc

}  // namespace twinforge

#endif  // TWINFORGE_WEIGHTS_RULES_H_
