// What rounding does to a program: how far off a stored element may be, proved from the program alone.
//
//   bf16: cast(cast(x: f32, bf16) * g: f32)      two roundings to bf16
//
// Rounding to a type moves a number by half a unit in the last place at most: by `HalfUnit` of its magnitude,
// or of the type's smallest normal number where that is more (IEEE 754, 4.3; Higham 2002, section 2.2). What
// is computed of rounded numbers inherits their errors by the rules of sums and products, each measured in
// the magnitudes that were added, so that terms which cancel hide nothing.
#ifndef TWINFORGE_WEIGHTS_ROUNDING_H_
#define TWINFORGE_WEIGHTS_ROUNDING_H_

#include <array>
#include <cstdint>

#include "weights/weight.h"

namespace twinforge {

// Half a unit in the last place of 1; the smallest normal number. REQUIRES: IsFloat(dtype).
double HalfUnit(DType dtype);
double SmallestNormal(DType dtype);

// Whether a number too large for the type becomes an infinity. Of other types it is held back at the largest
// number, off by any amount.
bool HoldsInfinity(DType dtype);

// How often a value is rounded on its way, by type. Of a product both operands' count, of a sum the larger.
class Roundings {
 public:
  void Add(DType dtype, int64_t times = 1) { times_[static_cast<int>(dtype)] += times; }
  Roundings& operator+=(const Roundings& other);
  // Of each type the larger count.
  static Roundings Either(const Roundings& a, const Roundings& b);
  // What `this` has more than `before`; nothing where it has less.
  Roundings Beyond(const Roundings& before) const;
  int64_t narrower_than_f64() const;  // how many are to such types
  Roundings ToF64() const;            // the others
  // (1 + u)(1 + u') ... - 1, of a magnitude.
  double Bound() const;

 private:
  std::array<int64_t, kDTypeCount> times_{};
};

// The roundings that a claim must name: to types narrower than f32, or than f64 where stored f64 is narrowed.
// A multiplication by a power of two and a cast that loses nothing are none.
Roundings StatedRoundings(const WeightPtr& w);

// The narrowest type that a value of `w` is rounded to on its way; the program's own where it is to none.
DType NarrowestType(const WeightPtr& w);

// Whether selections (the largest of a group) are made anew among unrounded values, or stand as they were
// made, their operand being taken as stored.
enum class Selections : uint8_t { kAnew, kAsMade };

// The same program over the same stored values with everything after them in f64: what it is in real
// arithmetic. Codes and scales of quantisation keep their types.
WeightPtr Unrounded(const WeightPtr& w, Selections selections = Selections::kAnew);

// |stored - exact| <= relative * |exact| + absolute + inner, element by element.
struct ErrorBound {
  WeightPtr exact;          // Unrounded(w, kAsMade)
  double relative = 0;      // of the last rounding
  double absolute = 0;      // the same below the smallest normal number
  WeightPtr inner;          // f64, of w's shape: what the roundings before it left; nullptr for nothing
  bool known = true;        // false where the program divides by a rounded number or rounds to an 8-bit float
  double of_magnitude = 0;  // all of them, of the magnitudes that the element is computed from
};
ErrorBound ErrorBoundOf(const WeightPtr& w);

// The operands of selections in `w`, each once: what ErrorBoundOf takes as stored.
std::vector<WeightPtr> SelectedFrom(const WeightPtr& w);

}  // namespace twinforge

#endif  // TWINFORGE_WEIGHTS_ROUNDING_H_
