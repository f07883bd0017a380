#include "weights/build.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "weights/pool.h"
#include "weights/rules.h"

namespace twinforge {
namespace {

bool HasAxis(const WeightPtr& x, int64_t axis) { return axis >= 0 && axis < x->rank(); }

void Check(Mistake mistake) { TWIN_CHECK(mistake == nullptr, mistake); }

std::vector<int64_t> EvensThenOdds(int64_t size) {
  std::vector<int64_t> order;
  for (int64_t parity : {0, 1}) {
    for (int64_t i = parity; i < size; i += 2) order.push_back(i);
  }
  return order;
}

}  // namespace

// ---- what each verb demands of its operands

Mistake WhyNotShape(absl::Span<const int64_t> shape) {
  return CheckedElementCount(shape).has_value() ? nullptr : "the shape is negative or too large";
}

Mistake WhyNotStack(int64_t first, int64_t count, absl::Span<const int64_t> member) {
  constexpr int64_t kMostMembers = 65536;  // far more experts than any layer has
  if (first < 0 || count < 1) return "a stack needs members, numbered from 0 or more";
  if (count > kMostMembers || first > (int64_t{1} << 40)) return "a stack has at most 65536 members";
  Shape shape = {count};
  shape.insert(shape.end(), member.begin(), member.end());
  return WhyNotShape(shape);
}

Mistake WhyNotTake(const WeightPtr& x, int64_t axis, const IndexMap& map) {
  if (!HasAxis(x, axis)) return "take along an axis that the operand does not have";
  if (map.max_index() >= x->shape()[axis]) return "take reads past the end of its axis";
  Shape shape = x->shape();
  shape[axis] = map.size();
  return WhyNotShape(shape);
}

Mistake WhyNotTranspose(const WeightPtr& x, absl::Span<const int64_t> perm) {
  if (static_cast<int64_t>(perm.size()) != x->rank()) return "transpose needs one entry per axis";
  for (size_t i = 0; i < perm.size(); ++i) {
    if (!HasAxis(x, perm[i])) return "transpose names an axis that the operand does not have";
    if (std::count(perm.begin(), perm.end(), perm[i]) != 1) return "transpose names an axis twice";
  }
  return nullptr;
}

Mistake WhyNotReshape(const WeightPtr& x, absl::Span<const int64_t> shape) {
  return CheckedElementCount(shape) == x->element_count() ? nullptr
                                                          : "reshape changes the number of elements";
}

Mistake WhyNotConcat(int64_t axis, absl::Span<const WeightPtr> xs) {
  if (xs.empty()) return "concat of nothing";
  Shape shape = xs[0]->shape();
  if (!HasAxis(xs[0], axis)) return "concat along an axis that its operands do not have";
  shape[axis] = 0;
  for (const WeightPtr& x : xs) {
    if (x->dtype() != xs[0]->dtype()) return "concat of unequal dtypes";
    if (x->rank() != xs[0]->rank()) return "concat of unequal ranks";
    for (int64_t i = 0; i < x->rank(); ++i) {
      if (i != axis && x->shape()[i] != shape[i]) return "concat of unequal extents beside its axis";
    }
    if (__builtin_add_overflow(shape[axis], x->shape()[axis], &shape[axis])) return "concat too long to hold";
  }
  return WhyNotShape(shape);
}

Mistake WhyNotCast(const WeightPtr& x, DType dtype) {
  const bool complex = x->dtype() == DType::kC64 || dtype == DType::kC64;
  return complex && x->dtype() != dtype ? "complex numbers have no cast" : nullptr;
}

Mistake WhyNotMap(const WeightPtr& x, const WeightPtr& y) {
  if (x->dtype() == DType::kC64 || y->dtype() == DType::kC64) return "complex numbers are not computed with";
  if (y->rank() > x->rank()) return "the second operand has more axes than the first";
  for (int64_t i = 0; i < y->rank(); ++i) {
    const int64_t extent = y->shape()[y->rank() - 1 - i];
    if (extent != 1 && extent != x->shape()[x->rank() - 1 - i]) {
      return "the second operand does not broadcast to the first";
    }
  }
  return nullptr;
}

Mistake WhyNotContract(const WeightPtr& a, const WeightPtr& b) {
  if (a->dtype() == DType::kC64 || b->dtype() == DType::kC64) return "complex numbers are not computed with";
  if (a->rank() < 2 || a->rank() != b->rank()) return "contract needs two operands of one rank, at least 2";
  const int64_t rank = a->rank();
  for (int64_t i = 0; i < rank - 2; ++i) {
    if (a->shape()[i] != b->shape()[i]) return "contract of unequal leading extents";
  }
  if (a->shape()[rank - 1] != b->shape()[rank - 2]) return "contract of unequal inner extents";
  Shape shape = a->shape();
  shape.back() = b->shape().back();
  return WhyNotShape(shape);
}

Mistake WhyNotStat(const WeightPtr& x, absl::Span<const int64_t> axes) {
  if (x->dtype() == DType::kC64) return "complex numbers are not computed with";
  for (size_t i = 0; i < axes.size(); ++i) {
    if (!HasAxis(x, axes[i])) return "stat over an axis that the operand does not have";
    if (i > 0 && axes[i] <= axes[i - 1]) return "stat needs its axes ascending";
  }
  return nullptr;
}

Mistake WhyNotGroup(GroupFn fn, const WeightPtr& x, int64_t axis, int64_t size, int64_t keep, DType target) {
  if (x->dtype() == DType::kC64 || target == DType::kC64) return "complex numbers are not computed with";
  if (!HasAxis(x, axis)) return "groups along an axis that the operand does not have";
  if (size < 1 || x->shape()[axis] % size != 0) return "groups do not divide their axis";
  if (fn == GroupFn::kKeepLargest && (keep < 0 || keep > size)) return "more elements kept than a group has";
  if (fn != GroupFn::kKeepLargest && !IsFloat(target) && !IsInteger(target)) return "no codes in this dtype";
  return nullptr;
}

// ---- the verbs

WeightPtr Source(absl::string_view tensor, DType dtype, Shape shape) {
  Check(WhyNotShape(shape));
  return WeightPool::Source(tensor, dtype, std::move(shape));
}

WeightPtr StackedSources(absl::string_view prefix, int64_t first, int64_t count, absl::string_view suffix,
                         DType dtype, absl::Span<const int64_t> member) {
  Check(WhyNotStack(first, count, member));
  return WeightPool::Stack(prefix, first, count, suffix, dtype, member);
}

WeightPtr Fill(double value, DType dtype, Shape shape) {
  Check(WhyNotShape(shape));
  return SimpleFill(value, dtype, std::move(shape));
}

WeightPtr Take(WeightPtr x, int64_t axis, IndexMap map, double fill) {
  Check(WhyNotTake(x, axis, map));
  return SimpleTake(x, axis, std::move(map), fill);
}

WeightPtr Transpose(WeightPtr x, std::vector<int64_t> perm) {
  Check(WhyNotTranspose(x, perm));
  return SimpleTranspose(x, std::move(perm));
}

WeightPtr Reshape(WeightPtr x, Shape shape) {
  Check(WhyNotReshape(x, shape));
  return SimpleReshape(x, std::move(shape));
}

WeightPtr Concat(int64_t axis, std::vector<WeightPtr> xs) {
  Check(WhyNotConcat(axis, xs));
  return SimpleConcat(axis, std::move(xs));
}

WeightPtr Cast(WeightPtr x, DType dtype) {
  Check(WhyNotCast(x, dtype));
  return SimpleCast(x, dtype);
}

WeightPtr Map(MapFn fn, WeightPtr x, WeightPtr y) {
  Check(WhyNotMap(x, y));
  return SimpleMap(fn, x, y);
}

WeightPtr Contract(WeightPtr a, WeightPtr b) {
  Check(WhyNotContract(a, b));
  return SimpleContract(a, b);
}

WeightPtr Stat(StatKind kind, WeightPtr x, std::vector<int64_t> axes) {
  Check(WhyNotStat(x, axes));
  return SimpleStat(kind, x, std::move(axes));
}

WeightPtr GroupKeepLargest(WeightPtr x, int64_t axis, int64_t size, int64_t keep) {
  Check(WhyNotGroup(GroupFn::kKeepLargest, x, axis, size, keep, x->dtype()));
  return SimpleGroup(GroupFn::kKeepLargest, x, axis, size, keep, x->dtype());
}

WeightPtr GroupScale(WeightPtr x, int64_t axis, int64_t size, DType target) {
  Check(WhyNotGroup(GroupFn::kScale, x, axis, size, 0, target));
  return SimpleGroup(GroupFn::kScale, x, axis, size, 0, target);
}

WeightPtr GroupCodes(WeightPtr x, int64_t axis, int64_t size, DType target) {
  Check(WhyNotGroup(GroupFn::kCodes, x, axis, size, 0, target));
  return SimpleGroup(GroupFn::kCodes, x, axis, size, 0, target);
}

// ---- named constructors

WeightPtr Slice(WeightPtr x, int64_t axis, int64_t start, int64_t count) {
  return Take(std::move(x), axis, IndexMap::Slice(start, count));
}

WeightPtr Pad(WeightPtr x, int64_t axis, int64_t count, double fill) {
  TWIN_CHECK(HasAxis(x, axis) && count >= 0,
             "pad along an axis that the operand does not have, or by less than 0");
  const IndexMap parts[] = {IndexMap::Identity(x->shape()[axis]), IndexMap::Fill(count)};
  return Take(std::move(x), axis, IndexMap::Join(parts), fill);
}

WeightPtr PermuteAxis(WeightPtr x, int64_t axis, absl::Span<const int64_t> order) {
  TWIN_CHECK(HasAxis(x, axis), "permutation of an axis that the operand does not have");
  TWIN_CHECK(static_cast<int64_t>(order.size()) == x->shape()[axis],
             "permutation of another length than its axis");
  std::vector<bool> seen(order.size(), false);
  std::vector<Run> runs;
  for (int64_t index : order) {
    TWIN_CHECK(index >= 0 && index < x->shape()[axis] && !seen[index], "not a permutation");
    seen[index] = true;
    runs.push_back({.start = index, .step = 1, .count = 1});
  }
  return Take(std::move(x), axis, IndexMap(std::move(runs)));
}

WeightPtr RepeatInterleave(WeightPtr x, int64_t axis, int64_t repeats) {
  TWIN_CHECK(HasAxis(x, axis) && repeats >= 0, "repeat along an axis that the operand does not have");
  const IndexMap block({Run{.start = 0, .step = 0, .count = repeats}});
  const int64_t size = x->shape()[axis];
  return Take(std::move(x), axis, IndexMap::Tile(block, size, 1));
}

WeightPtr Stack(int64_t axis, std::vector<WeightPtr> xs) {
  for (WeightPtr& x : xs) {
    Shape shape = x->shape();
    TWIN_CHECK(axis >= 0 && axis <= x->rank(), "stack along an axis out of range");
    shape.insert(shape.begin() + axis, 1);
    x = Reshape(std::move(x), std::move(shape));
  }
  return Concat(axis, std::move(xs));
}

WeightPtr Index(WeightPtr x, int64_t axis, int64_t at) {
  x = Slice(std::move(x), axis, at, 1);
  Shape shape = x->shape();
  shape.erase(shape.begin() + axis);
  return Reshape(std::move(x), std::move(shape));
}

WeightPtr InterleaveToHalves(WeightPtr x, int64_t axis) {
  TWIN_CHECK(HasAxis(x, axis), "interleave along an axis that the operand does not have");
  const int64_t half = x->shape()[axis] / 2;
  TWIN_CHECK(half * 2 == x->shape()[axis], "interleave of an odd extent");
  const IndexMap parts[] = {IndexMap::Slice(0, half, 2), IndexMap::Slice(1, half, 2)};
  return Take(std::move(x), axis, half == 0 ? IndexMap() : IndexMap::Join(parts));
}

WeightPtr HalvesToInterleave(WeightPtr x, int64_t axis) {
  TWIN_CHECK(HasAxis(x, axis), "interleave along an axis that the operand does not have");
  const int64_t size = x->shape()[axis];
  TWIN_CHECK(size % 2 == 0, "interleave of an odd extent");
  // Place EvensThenOdds[i] holds index i: the inverse of InterleaveToHalves.
  const std::vector<int64_t> place = EvensThenOdds(size);
  std::vector<int64_t> order(size);
  for (int64_t i = 0; i < size; ++i) order[place[i]] = i;
  return PermuteAxis(std::move(x), axis, order);
}

WeightPtr Scale(WeightPtr x, double factor) {
  if (factor == 1) return x;
  return Map(MapFn::kMul, std::move(x), Fill(factor, DType::kF64, {}));
}

WeightPtr AddConstant(WeightPtr x, double term) {
  if (term == 0) return x;
  return Map(MapFn::kAdd, std::move(x), Fill(term, DType::kF64, {}));
}

WeightPtr MergeLora(WeightPtr w, WeightPtr a, WeightPtr b, double factor) {
  // The product stays in f64 until the sum is rounded, once, to the dtype of `w`.
  WeightPtr delta = Contract(Cast(std::move(b), DType::kF64), std::move(a));
  return Map(MapFn::kAdd, std::move(w), Scale(std::move(delta), factor));
}

}  // namespace twinforge
