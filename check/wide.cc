#include "check/wide.h"

namespace twinforge {

// One decimal after the other, as on paper.
Wide Quotient21(Wide count, Wide rate) {
  if (!count.ok() || !rate.ok() || rate.zero()) return Wide::None();
  Wide seconds = Floor(count, rate);
  Wide rest = Beyond(count, seconds * rate);
  for (int place = 0; place < 21; ++place) {
    rest = rest * 10;
    const Wide digit = Floor(rest, rate);
    rest = Beyond(rest, digit * rate);
    seconds = seconds * 10 + digit;
  }
  return seconds;
}

std::string PlainNumber(Wide value) {
  if (!value.ok()) return "beyond 128 bits";
  std::string reversed;
  Wide::Bits bits = value.bits();
  do {
    reversed += static_cast<char>('0' + static_cast<int>(bits % 10));
    bits /= 10;
  } while (bits > 0);
  return {reversed.rbegin(), reversed.rend()};
}

std::string PlainSeconds(Wide value) {
  std::string digits = PlainNumber(value);
  if (!value.ok()) return digits;
  if (digits.size() < 22) digits = std::string(22 - digits.size(), '0') + digits;
  return digits.substr(0, digits.size() - 21) + "." + digits.substr(digits.size() - 21);
}

}  // namespace twinforge
