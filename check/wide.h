// Whole numbers of 128 bits that remember that they once overflowed, and times in multiples of 10^-21 s.
//
//   Quotient21(2 * Wide(1000), Wide(918000000000000))     2,178,649,237,472: seconds, rounded down
//   PlainSeconds(that)                                     "0.000000002178649237472"
#ifndef TWINFORGE_CHECK_WIDE_H_
#define TWINFORGE_CHECK_WIDE_H_

#include <cstdint>
#include <string>

namespace twinforge {

class Wide {
 public:
  __extension__ typedef unsigned __int128 Bits;

  constexpr Wide() = default;
  constexpr Wide(int64_t value)  // NOLINT: a number is a count
      : bits_(static_cast<Bits>(value)), ok_(value >= 0) {}
  static constexpr Wide None() { return Wide(-1); }

  constexpr bool ok() const { return ok_; }
  constexpr Bits bits() const { return bits_; }  // REQUIRES: ok()
  constexpr bool zero() const { return ok_ && bits_ == 0; }

  friend constexpr Wide operator+(Wide a, Wide b) {
    Wide sum;
    sum.ok_ = !__builtin_add_overflow(a.bits_, b.bits_, &sum.bits_) && a.ok_ && b.ok_;
    return sum;
  }
  friend constexpr Wide operator*(Wide a, Wide b) {
    Wide product;
    product.ok_ = !__builtin_mul_overflow(a.bits_, b.bits_, &product.bits_) && a.ok_ && b.ok_;
    return product;
  }
  // a - b, or 0 where b is more.
  friend constexpr Wide Beyond(Wide a, Wide b) {
    Wide rest;
    rest.ok_ = a.ok_ && b.ok_;
    rest.bits_ = a.bits_ > b.bits_ ? a.bits_ - b.bits_ : 0;
    return rest;
  }
  // Rounded up; nothing where b is 0.
  friend constexpr Wide Ceil(Wide a, Wide b) {
    if (!a.ok_ || !b.ok_ || b.bits_ == 0) return None();
    Wide quotient;
    quotient.bits_ = a.bits_ / b.bits_ + (a.bits_ % b.bits_ != 0 ? 1 : 0);
    return quotient;
  }
  // Rounded down.
  friend constexpr Wide Floor(Wide a, Wide b) {
    if (!a.ok_ || !b.ok_ || b.bits_ == 0) return None();
    Wide quotient;
    quotient.bits_ = a.bits_ / b.bits_;
    return quotient;
  }
  friend constexpr Wide Up(Wide a, Wide b) { return Ceil(a, b) * b; }
  // Nothing where one of the two overflowed.
  friend constexpr Wide Least(Wide a, Wide b) {
    if (!a.ok_ || !b.ok_) return None();
    return a.bits_ < b.bits_ ? a : b;
  }
  friend constexpr Wide Most(Wide a, Wide b) {
    if (!a.ok_ || !b.ok_) return None();
    return a.bits_ < b.bits_ ? b : a;
  }
  // Both known and alike; what overflowed equals nothing.
  friend constexpr bool operator==(Wide a, Wide b) { return a.ok_ && b.ok_ && a.bits_ == b.bits_; }
  friend constexpr bool Below(Wide a, Wide b) { return a.ok_ && b.ok_ && a.bits_ < b.bits_; }

 private:
  Bits bits_ = 0;
  bool ok_ = true;
};

// count / rate in multiples of 10^-21, rounded down.
Wide Quotient21(Wide count, Wide rate);

std::string PlainNumber(Wide value);   // "beyond 128 bits" where it overflowed
std::string PlainSeconds(Wide value);  // with all 21 decimals

}  // namespace twinforge

#endif  // TWINFORGE_CHECK_WIDE_H_
