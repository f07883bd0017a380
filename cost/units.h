// Seconds, bytes, operations and their rates as types, so that mixing them does not compile.
//
//   Seconds t = Flops(2.0 * macs) / chip.peak;      // operations over operations per second
//   Seconds u = Bytes(n) / chip.hbm_bandwidth;
//   Flops(1) / chip.hbm_bandwidth                   // no such operator
//
// Counts are exact integers (exact.h); a number enters this file at the moment it is turned into time.
#ifndef TWINFORGE_COST_UNITS_H_
#define TWINFORGE_COST_UNITS_H_

#include <algorithm>

namespace twinforge {

template <typename Tag>
class Measure {
 public:
  constexpr Measure() = default;
  constexpr explicit Measure(double value) : value_(value) {}
  constexpr double value() const { return value_; }
  constexpr bool known() const { return value_ > 0; }
  friend constexpr Measure operator+(Measure a, Measure b) { return Measure(a.value_ + b.value_); }
  friend constexpr Measure operator*(double a, Measure b) { return Measure(a * b.value_); }
  friend constexpr bool operator<(Measure a, Measure b) { return a.value_ < b.value_; }

 private:
  double value_ = 0;
};

using Seconds = Measure<struct SecondsTag>;
using Bytes = Measure<struct BytesTag>;
using Flops = Measure<struct FlopsTag>;
using BytesPerSecond = Measure<struct BytesPerSecondTag>;
using FlopsPerSecond = Measure<struct FlopsPerSecondTag>;

// REQUIRES: the rate is known.
constexpr Seconds operator/(Flops a, FlopsPerSecond b) { return Seconds(a.value() / b.value()); }
constexpr Seconds operator/(Bytes a, BytesPerSecond b) { return Seconds(a.value() / b.value()); }

}  // namespace twinforge

#endif  // TWINFORGE_COST_UNITS_H_
