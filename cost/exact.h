// An int64 that remembers that it once overflowed.
//
// Counts multiply many sizes; checking each product would bury the formulas. An Exact computes like an
// integer, and whoever takes its value out asks ok() once. An overflow is never undone by later operations.
#ifndef TWINFORGE_COST_EXACT_H_
#define TWINFORGE_COST_EXACT_H_

#include <cstdint>

namespace twinforge {

class Exact {
 public:
  constexpr Exact() = default;
  constexpr Exact(int64_t value) : value_(value) {}  // NOLINT: a number is a count
  constexpr bool ok() const { return ok_; }
  // REQUIRES: ok(); else the value means nothing.
  constexpr int64_t value() const { return value_; }

  friend constexpr Exact operator+(Exact a, Exact b) {
    Exact sum;
    sum.ok_ = !__builtin_add_overflow(a.value_, b.value_, &sum.value_) && a.ok_ && b.ok_;
    return sum;
  }
  friend constexpr Exact operator*(Exact a, Exact b) {
    Exact product;
    product.ok_ = !__builtin_mul_overflow(a.value_, b.value_, &product.value_) && a.ok_ && b.ok_;
    return product;
  }
  // Rounded towards zero. REQUIRES: b > 0.
  friend constexpr Exact operator/(Exact a, int64_t b) {
    a.value_ /= b;
    return a;
  }
  Exact& operator+=(Exact b) { return *this = *this + b; }

  friend constexpr Exact Min(Exact a, Exact b) {
    if (!a.ok_) return b;
    if (!b.ok_) return a;
    return a.value_ < b.value_ ? a : b;
  }

 private:
  int64_t value_ = 0;
  bool ok_ = true;
};

// REQUIRES: a >= 0, b > 0.
constexpr int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0); }
constexpr Exact RoundUp(int64_t a, int64_t b) { return Exact(CeilDiv(a, b)) * b; }

}  // namespace twinforge

#endif  // TWINFORGE_COST_EXACT_H_
