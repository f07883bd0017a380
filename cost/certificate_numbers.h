// Numbers of a certificate: decimals as they stand in a chip file, and times that are quotients of integers.
//
//   ShortestDecimal(31.25)                     "31.25"
//   InUnits("31.25", "GiB")                    33,554,432,000
//   SecondsOf(2 * 1000, InUnits("918", "TFLOP/s"))    2,178,649,237,472 (x 10^-21 s)
//   SecondsText(2178649237472)                 "0.000000002178649237472"
#ifndef TWINFORGE_COST_CERTIFICATE_NUMBERS_H_
#define TWINFORGE_COST_CERTIFICATE_NUMBERS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace twinforge {

__extension__ typedef unsigned __int128 Natural128;

// A number of seconds in multiples of 10^-21.
struct Zeptoseconds {
  Natural128 value = 0;
  bool operator==(const Zeptoseconds&) const = default;
  auto operator<=>(const Zeptoseconds&) const = default;
};

// The shortest decimal that reads back as `value`. REQUIRES: value is 0 or within 1e-15 .. 1e15.
std::string ShortestDecimal(double value);

// Rounded to 15 decimals. REQUIRES: 0 <= value <= 1e15.
std::string RoundedDecimal(double value);

// `decimal` in base units, rounded down to a whole number. REQUIRES: digits with at most one dot, and a unit
// of chip_units.h that is a whole number of base units.
Natural128 InUnits(const std::string& decimal, absl::string_view unit);

// count / rate, rounded down. REQUIRES: 0 < rate < 2^117.
Zeptoseconds SecondsOf(Natural128 count, Natural128 rate);
// The nearest multiple of 10^-15 s. REQUIRES: 0 <= seconds <= 10^12.
Zeptoseconds SecondsOf(double seconds);

std::string SecondsText(Zeptoseconds seconds);
double AsDouble(Zeptoseconds seconds);

}  // namespace twinforge

#endif  // TWINFORGE_COST_CERTIFICATE_NUMBERS_H_
