#include "weights/rounding.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "weights/build.h"

namespace twinforge {
namespace {

// Bits after the leading one, and the exponent of the smallest normal number.
struct FloatForm {
  int fraction, least;
};
FloatForm FormOf(DType dtype) {
  switch (dtype) {
    case DType::kF4:
      return {1, 0};
    case DType::kF6E2M3:
      return {3, 0};
    case DType::kF6E3M2:
      return {2, -2};
    case DType::kF8E5M2:
      return {2, -14};
    case DType::kF8E4M3:
      return {3, -6};
    case DType::kF8E8M0:
      return {0, -127};
    case DType::kF8E4M3Fnuz:
      return {3, -7};
    case DType::kF8E5M2Fnuz:
      return {2, -15};
    case DType::kF16:
      return {10, -14};
    case DType::kBF16:
      return {7, -126};
    case DType::kF32:
      return {23, -126};
    case DType::kF64:
      return {52, -1022};
    default:
      TWIN_CHECK(false, "no floating type");
      return {};
  }
}

bool IsPowerOfTwoFill(const WeightPtr& w) {
  if (w->kind() == WeightKind::kReshape || w->kind() == WeightKind::kCast)
    return IsPowerOfTwoFill(w->child());
  int exponent = 0;
  return w->kind() == WeightKind::kFill && std::abs(std::frexp(w->fill(), &exponent)) == 0.5;
}

// Whether `w` multiplies or divides by a power of two, which moves the exponent and rounds nothing in range.
bool MovesExponent(const Weight& w) {
  return w.kind() == WeightKind::kMap && (w.map_fn() == MapFn::kMul || w.map_fn() == MapFn::kDiv) &&
         IsPowerOfTwoFill(w.child(1));
}

// What jumps where its operand moves: the choice of a group, codes and whole numbers.
bool IsSelection(const Weight& w) {
  if (w.kind() == WeightKind::kGroup) return true;
  const bool computes =
      w.kind() == WeightKind::kCast || w.kind() == WeightKind::kMap || w.kind() == WeightKind::kContract;
  return computes && !IsFloat(w.dtype());
}

bool RoundsFill(const Weight& w) {
  if (!IsFloat(w.dtype())) return false;
  std::byte code[8];
  FromDouble(w.dtype(), w.fill(), code);
  return ToDouble(w.dtype(), code) != w.fill() && std::isfinite(w.fill());
}

bool IsLossyCast(const Weight& w) { return IsFloat(w.dtype()) && !IsLossless(w.child()->dtype(), w.dtype()); }

// ---- counting

struct Counted {
  Roundings all;     // every one, those to f64 too
  Roundings narrow;  // to types narrower than f32
  Roundings to_f32;  // to f32: stated only where f64 was stored
  bool reads_f64 = false;
  bool unbounded = false;  // divides by a rounded number, or rounds to a type without infinities
};

class Counter {
 public:
  explicit Counter(bool through_selections) : through_selections_(through_selections) {}

  const Counted& Of(const WeightPtr& w) {
    const auto known = done_.find(w.get());
    if (known != done_.end()) return known->second;
    Counted counted = Count(*w);
    return done_[w.get()] = std::move(counted);
  }

 private:
  Counted Count(const Weight& w) {
    Counted counted = OfChildren(w);
    switch (w.kind()) {
      case WeightKind::kSource:
      case WeightKind::kStack:
        counted.reads_f64 = w.dtype() == DType::kF64;
        break;
      case WeightKind::kFill:
      case WeightKind::kTake:
        if (RoundsFill(w)) Round(w.dtype(), true, counted);
        break;
      case WeightKind::kTranspose:
      case WeightKind::kReshape:
      case WeightKind::kConcat:
        break;
      case WeightKind::kCast:
        if (IsLossyCast(w)) Round(w.dtype(), true, counted);
        break;
      case WeightKind::kMap: {
        counted.unbounded |= w.map_fn() == MapFn::kDiv && Of(w.child(1)).all.narrower_than_f64() > 0;
        if (IsFloat(w.dtype())) Round(w.dtype(), !MovesExponent(w), counted);
        break;
      }
      case WeightKind::kContract:
        counted.all.Add(DType::kF64, w.child(0)->shape().back());  // a sum of so many terms
        if (IsFloat(w.dtype())) Round(w.dtype(), true, counted);
        break;
      case WeightKind::kStat:
        counted.all.Add(DType::kF64, w.child()->element_count() / std::max<int64_t>(w.element_count(), 1));
        break;
      case WeightKind::kGroup:
        break;
    }
    return counted;
  }

  Counted OfChildren(const Weight& w) {
    Counted counted;
    if (IsSelection(w) && !through_selections_) return counted;
    const bool product =
        w.kind() == WeightKind::kContract ||
        (w.kind() == WeightKind::kMap && w.map_fn() != MapFn::kAdd && w.map_fn() != MapFn::kSub);
    const bool square = w.kind() == WeightKind::kStat && w.stat_kind() == StatKind::kSumSquares;
    for (const WeightPtr& child : w.children()) {
      const Counted& part = Of(child);
      for (Roundings Counted::*which : {&Counted::all, &Counted::narrow, &Counted::to_f32}) {
        Roundings& own = counted.*which;
        if (product || square) own += part.*which;
        if (square) own += part.*which;
        if (!product && !square) own = Roundings::Either(own, part.*which);
      }
      counted.reads_f64 |= part.reads_f64;
      counted.unbounded |= part.unbounded;
    }
    return counted;
  }

  static void Round(DType dtype, bool stated, Counted& counted) {
    counted.unbounded |= !HoldsInfinity(dtype);
    counted.all.Add(dtype);
    counted.all.Add(DType::kF64);  // the result of arithmetic, before it is rounded to the type
    if (!stated || dtype == DType::kF64) return;
    (dtype == DType::kF32 ? counted.to_f32 : counted.narrow).Add(dtype);
  }

  const bool through_selections_;
  absl::flat_hash_map<const Weight*, Counted> done_;
};

// ---- rebuilding

// Rebuilds a program bottom-up with f64 everywhere; a shared part is rebuilt once. With `magnitudes`, of the
// stored values' magnitudes, what is subtracted added, and the smallest normal number added wherever a number
// is rounded.
class Rebuilder {
 public:
  Rebuilder(Selections selections, bool magnitudes) : selections_(selections), magnitudes_(magnitudes) {}

  WeightPtr Of(const WeightPtr& w) {
    const auto known = done_.find(w.get());
    if (known != done_.end()) return known->second;
    WeightPtr result = Rebuild(*w, w);
    done_[w.get()] = result;
    return result;
  }

 private:
  WeightPtr Stored(const WeightPtr& w) const {
    if (magnitudes_ && w->dtype() != DType::kC64) return Stat(StatKind::kAbsMax, w, {});
    return IsFloat(w->dtype()) ? Cast(w, DType::kF64) : w;
  }
  double Number(const Weight& w) const {
    if (!magnitudes_) return w.fill();
    return std::abs(w.fill()) + (RoundsFill(w) ? SmallestNormal(w.dtype()) : 0);
  }
  WeightPtr Rounded(const WeightPtr& x, DType dtype) const {
    return magnitudes_ ? AddConstant(x, SmallestNormal(dtype)) : x;
  }

  WeightPtr Rebuild(const Weight& w, const WeightPtr& self) {
    if (selections_ == Selections::kAsMade && IsSelection(w)) return Stored(self);
    switch (w.kind()) {
      case WeightKind::kSource:
      case WeightKind::kStack:
        return Stored(self);
      case WeightKind::kFill:
        return IsFloat(w.dtype()) || magnitudes_ ? Fill(Number(w), DType::kF64, w.shape()) : self;
      case WeightKind::kTake:
        return Take(Of(w.child()), w.axis(), w.map(), Number(w));
      case WeightKind::kTranspose:
        return Transpose(Of(w.child()), w.perm());
      case WeightKind::kReshape:
        return Reshape(Of(w.child()), w.shape());
      case WeightKind::kConcat: {
        std::vector<WeightPtr> parts;
        for (const WeightPtr& part : w.children()) parts.push_back(Of(part));
        return Concat(w.axis(), std::move(parts));
      }
      case WeightKind::kCast:
        if (!IsFloat(w.dtype())) return Cast(Of(w.child()), w.dtype());
        return IsLossyCast(w) ? Rounded(Cast(Of(w.child()), DType::kF64), w.dtype())
                              : Cast(Of(w.child()), DType::kF64);
      case WeightKind::kMap:
        return Mapped(w);
      case WeightKind::kContract:
        return Rounded(Contract(Of(w.child(0)), Of(w.child(1))), w.dtype());
      case WeightKind::kStat:
        return Statistic(w);
      case WeightKind::kGroup:
        return Selected(w);
    }
    return self;
  }

  WeightPtr Mapped(const Weight& w) {
    MapFn fn = w.map_fn();
    if (magnitudes_ && fn == MapFn::kSub) fn = MapFn::kAdd;
    const WeightPtr mapped = Map(fn, Of(w.child(0)), Of(w.child(1)));
    return IsFloat(w.dtype()) ? Rounded(mapped, w.dtype()) : mapped;
  }

  WeightPtr Statistic(const Weight& w) {
    StatKind kind = w.stat_kind();
    if (magnitudes_ && (kind == StatKind::kMin || kind == StatKind::kMax)) kind = StatKind::kAbsMax;
    return Stat(kind, Of(w.child()), w.axes());
  }

  WeightPtr Selected(const Weight& w) {
    const WeightPtr x = Of(w.child());
    switch (w.group_fn()) {
      case GroupFn::kKeepLargest:
        return GroupKeepLargest(x, w.axis(), w.group_size(), w.keep());
      case GroupFn::kScale:
        return GroupScale(x, w.axis(), w.group_size(), w.group_target());
      case GroupFn::kCodes:
        return GroupCodes(x, w.axis(), w.group_size(), w.group_target());
    }
    return x;
  }

  const Selections selections_;
  const bool magnitudes_;
  absl::flat_hash_map<const Weight*, WeightPtr> done_;
};

// ---- bounding

// The roundings of a program in two parts: the last on every way to an element, which are off by a part of
// the element itself, and the ones before them.
class Bounder {
 public:
  explicit Bounder(const WeightPtr& w) {
    bound_.exact = Unrounded(w, Selections::kAsMade);
    const Roundings& all = counter_.Of(w).all;
    if (all.narrower_than_f64() > 0) bound_.of_magnitude = all.Bound();
    bound_.known = !counter_.Of(w).unbounded;
    const WeightPtr inner = bound_.known ? Inner(w) : nullptr;
    if (inner != nullptr && inner->kind() != WeightKind::kFill) bound_.inner = inner;
  }
  ErrorBound Take() { return std::move(bound_); }

 private:
  // What an element inherits: zeros where the last rounding was the only one.
  WeightPtr Inner(const WeightPtr& w) {
    switch (w->kind()) {
      case WeightKind::kTake:
        if (RoundsFill(*w)) break;
        return twinforge::Take(Inner(w->child()), w->axis(), w->map(), 0);
      case WeightKind::kTranspose:
        return Transpose(Inner(w->child()), w->perm());
      case WeightKind::kReshape:
        return Reshape(Inner(w->child()), w->shape());
      case WeightKind::kConcat: {
        std::vector<WeightPtr> parts;
        for (const WeightPtr& part : w->children()) parts.push_back(Inner(part));
        return Concat(w->axis(), std::move(parts));
      }
      case WeightKind::kCast:
        if (IsFloat(w->dtype()) && !IsLossyCast(*w)) return Inner(w->child());
        break;
      default:
        break;
    }
    return LastRounding(w);
  }

  WeightPtr LastRounding(const WeightPtr& w) {
    const WeightPtr nothing = Fill(0, DType::kF64, w->shape());
    const Roundings& all = counter_.Of(w).all;
    if (all.narrower_than_f64() == 0) return nothing;
    const double unit = HalfUnit(w->dtype());
    if (!MovesExponent(*w)) bound_.relative = std::max(bound_.relative, unit);
    bound_.absolute = std::max(bound_.absolute, unit * SmallestNormal(w->dtype()));
    Roundings last;
    last.Add(w->dtype());
    Roundings before = all.Beyond(last);
    if (before.narrower_than_f64() == 0) return nothing;  // both are one number in f64, rounded or not
    before += all.ToF64();                                // what real arithmetic in f64 is off by
    return Scale(Rebuilder(Selections::kAsMade, true).Of(w), before.Bound() * (1 + unit));
  }

  Counter counter_{false};
  ErrorBound bound_;
};

void AddSelectedFrom(const WeightPtr& w, absl::flat_hash_set<const Weight*>& seen,
                     std::vector<WeightPtr>& out) {
  if (!seen.insert(w.get()).second) return;
  if (IsSelection(*w)) out.insert(out.end(), w->children().begin(), w->children().end());
  for (const WeightPtr& child : w->children()) AddSelectedFrom(child, seen, out);
}

}  // namespace

bool HoldsInfinity(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 || dtype == DType::kF64;
}

double HalfUnit(DType dtype) { return std::ldexp(1, -FormOf(dtype).fraction - 1); }
double SmallestNormal(DType dtype) { return std::ldexp(1, FormOf(dtype).least); }

Roundings& Roundings::operator+=(const Roundings& other) {
  for (int i = 0; i < kDTypeCount; ++i) times_[i] += other.times_[i];
  return *this;
}

Roundings Roundings::Either(const Roundings& a, const Roundings& b) {
  Roundings most;
  for (int i = 0; i < kDTypeCount; ++i) most.times_[i] = std::max(a.times_[i], b.times_[i]);
  return most;
}

Roundings Roundings::Beyond(const Roundings& before) const {
  Roundings more;
  for (int i = 0; i < kDTypeCount; ++i) more.times_[i] = std::max<int64_t>(times_[i] - before.times_[i], 0);
  return more;
}

int64_t Roundings::narrower_than_f64() const {
  int64_t total = 0;
  for (const int64_t times : times_) total += times;
  return total - times_[static_cast<int>(DType::kF64)];
}

Roundings Roundings::ToF64() const {
  Roundings f64;
  f64.Add(DType::kF64, times_[static_cast<int>(DType::kF64)]);
  return f64;
}

double Roundings::Bound() const {
  double bound = 0;
  for (const DType dtype : AllDTypes()) {
    const int64_t times = times_[static_cast<int>(dtype)];
    if (times == 0) continue;
    const double unit = HalfUnit(dtype);
    // Exact where a few roundings are counted, which is what people read; no loop over a sum's terms.
    double factor = times <= 4 ? unit : std::expm1(static_cast<double>(times) * std::log1p(unit));
    for (int64_t i = 1; times <= 4 && i < times; ++i) factor += unit + factor * unit;
    bound += factor + bound * factor;
  }
  return bound;
}

Roundings StatedRoundings(const WeightPtr& w) {
  if (OnlyMoves(w)) return {};
  Counter counter(true);
  Counted counted = counter.Of(w);
  if (counted.reads_f64) counted.narrow += counted.to_f32;
  return counted.narrow;
}

DType NarrowestType(const WeightPtr& w) {
  DType narrowest = w->dtype();
  for (const WeightPtr& child : w->children()) {
    if (!IsFloat(child->dtype())) continue;
    const DType inside = NarrowestType(child);
    const bool stored = child->kind() == WeightKind::kSource || child->kind() == WeightKind::kStack;
    if (!stored && HalfUnit(inside) > HalfUnit(narrowest)) narrowest = inside;
  }
  return narrowest;
}

WeightPtr Unrounded(const WeightPtr& w, Selections selections) { return Rebuilder(selections, false).Of(w); }

ErrorBound ErrorBoundOf(const WeightPtr& w) { return Bounder(w).Take(); }

std::vector<WeightPtr> SelectedFrom(const WeightPtr& w) {
  absl::flat_hash_set<const Weight*> seen;
  std::vector<WeightPtr> operands;
  AddSelectedFrom(w, seen, operands);
  return operands;
}

}  // namespace twinforge
