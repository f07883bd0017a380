// Where weights are made: every verb as it is written, checked but not simplified.
//
// Only build.cc, simplify*.cc and text.cc include this. For each verb there is a pair: WhyNot
// says in a sentence what is wrong with the operands, or null; the maker (REQUIRES: WhyNot
// is null) returns the one shared object for that program. The pool holds its entries
// weakly: a program that nobody holds any more is forgotten.
#ifndef TWINFORGE_WEIGHTS_POOL_H_
#define TWINFORGE_WEIGHTS_POOL_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "weights/weight.h"

namespace twinforge {

class WeightPool {
 public:
  static WeightPtr Source(absl::string_view tensor, DType dtype, Shape shape);
  static WeightPtr Stack(absl::string_view prefix, int64_t first, int64_t count, absl::string_view suffix,
                         DType dtype, absl::Span<const int64_t> member);
  static WeightPtr Fill(double value, DType dtype, Shape shape);
  static WeightPtr Take(WeightPtr x, int64_t axis, IndexMap map, double fill);
  static WeightPtr Transpose(WeightPtr x, std::vector<int64_t> perm);
  static WeightPtr Reshape(WeightPtr x, Shape shape);
  static WeightPtr Concat(int64_t axis, std::vector<WeightPtr> xs);
  static WeightPtr Cast(WeightPtr x, DType dtype);
  static WeightPtr Map(MapFn fn, WeightPtr x, WeightPtr y);
  static WeightPtr Contract(WeightPtr a, WeightPtr b);
  static WeightPtr Stat(StatKind kind, WeightPtr x, std::vector<int64_t> axes);
  static WeightPtr Group(GroupFn fn, WeightPtr x, int64_t axis, int64_t size, int64_t keep, DType target);

  // How many programs are alive, for tests.
  static int64_t LiveCount();

 private:
  struct Made;  // lets make_shared build a Weight
  static WeightPtr Intern(Weight&& candidate);
};

// Texts of fixed mistakes; null where there is none.
using Mistake = const char*;
Mistake WhyNotShape(absl::Span<const int64_t> shape);
Mistake WhyNotStack(int64_t first, int64_t count, absl::Span<const int64_t> member);
Mistake WhyNotTake(const WeightPtr& x, int64_t axis, const IndexMap& map);
Mistake WhyNotTranspose(const WeightPtr& x, absl::Span<const int64_t> perm);
Mistake WhyNotReshape(const WeightPtr& x, absl::Span<const int64_t> shape);
Mistake WhyNotConcat(int64_t axis, absl::Span<const WeightPtr> xs);
Mistake WhyNotCast(const WeightPtr& x, DType dtype);
Mistake WhyNotMap(const WeightPtr& x, const WeightPtr& y);
Mistake WhyNotContract(const WeightPtr& a, const WeightPtr& b);
Mistake WhyNotStat(const WeightPtr& x, absl::Span<const int64_t> axes);
Mistake WhyNotGroup(GroupFn fn, const WeightPtr& x, int64_t axis, int64_t size, int64_t keep, DType target);

// IndexMap::Parse for texts that hold many maps: takes what it needs, before runs are
// merged, from a budget of runs, and refuses when that is used up.
absl::StatusOr<IndexMap> ParseIndexMap(absl::string_view text, int64_t& run_budget);

// `value` as `dtype` holds it: rounded, and NaN always the same NaN.
double RoundTo(DType dtype, double value);

// Equal as bits: 0 and -0 differ, NaN is itself.
bool SameBits(double a, double b);

}  // namespace twinforge

#endif  // TWINFORGE_WEIGHTS_POOL_H_
