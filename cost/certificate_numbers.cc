#include "cost/certificate_numbers.h"

#include <cmath>
#include <cstdlib>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "cost/chip_units.h"

namespace twinforge {
namespace {

constexpr int kPlaces = 21;
constexpr int kGroup = 3;  // decimals made by one division

std::string Digits(Natural128 value) {
  std::string digits;
  do {
    digits.insert(digits.begin(), static_cast<char>('0' + static_cast<int>(value % 10)));
    value /= 10;
  } while (value > 0);
  return digits;
}

}  // namespace

std::string ShortestDecimal(double value) {
  TWIN_CHECK(value == 0 || (value >= 1e-15 && value <= 1e15), "a number that a certificate can't hold");
  for (int places = 0; places <= 40; ++places) {
    const std::string text = absl::StrFormat("%.*f", places, value);
    if (std::strtod(text.c_str(), nullptr) == value) return text;
  }
  TWIN_CHECK(false, "a decimal of forty places is exact for every number of this range");
}

std::string RoundedDecimal(double value) {
  TWIN_CHECK(value >= 0 && value <= 1e15, "a constant out of range");
  std::string text = absl::StrFormat("%.15f", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

Natural128 InUnits(const std::string& decimal, absl::string_view unit) {
  const std::optional<double> scale = UnitScale(unit);
  TWIN_CHECK(scale && *scale >= 1 && *scale == std::floor(*scale), unit);
  Natural128 digits = 0;
  Natural128 divisor = 1;
  bool fraction = false;
  for (const char c : decimal) {
    if (c == '.') {
      fraction = true;
      continue;
    }
    digits = digits * 10 + static_cast<unsigned>(c - '0');
    if (fraction) divisor *= 10;
  }
  return digits * static_cast<Natural128>(*scale) / divisor;
}

Zeptoseconds SecondsOf(Natural128 count, Natural128 rate) {
  TWIN_CHECK(rate > 0 && rate >> 117 == 0, "a rate out of range");
  Natural128 seconds = count / rate;
  Natural128 rest = count % rate;
  for (int place = 0; place < kPlaces; place += kGroup) {
    rest *= 1000;
    seconds = seconds * 1000 + rest / rate;
    rest %= rate;
  }
  return {seconds};
}

Zeptoseconds SecondsOf(double seconds) {
  TWIN_CHECK(seconds >= 0 && seconds <= 1e12, "seconds out of range");
  return {static_cast<Natural128>(static_cast<long double>(seconds) * 1e15L + 0.5L) * 1000000};
}

std::string SecondsText(Zeptoseconds seconds) {
  std::string digits = Digits(seconds.value);
  if (digits.size() <= kPlaces) digits.insert(0, kPlaces + 1 - digits.size(), '0');
  return absl::StrCat(digits.substr(0, digits.size() - kPlaces), ".", digits.substr(digits.size() - kPlaces));
}

double AsDouble(Zeptoseconds seconds) {
  return static_cast<double>(static_cast<long double>(seconds.value) / 1e21L);
}

}  // namespace twinforge
