#include "check/certificate_scan.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"

namespace twinforge {
namespace {

constexpr size_t kMostDigits = 38;  // below 2^127
constexpr size_t kMostDims = 8;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

bool CertScan::Fail(absl::string_view message) {
  if (failure_.ok()) {
    failure_ = Error(1810, absl::StrCat(place_, ":", line_, ":", at_ - line_start_ + 1), message);
  }
  return false;
}

bool CertScan::Take(absl::string_view expected) {
  if (!Sees(expected)) return Fail(absl::StrCat(JsonQuoted(expected, 100), " is expected here"));
  at_ += expected.size();
  return true;
}

bool CertScan::End() {
  if (!Sees("\n")) return Fail("the end of the line is expected here");
  line_start_ = ++at_;
  ++line_;
  return true;
}

bool CertScan::Digits(size_t most, Wide& number) {
  size_t digits = 0;
  number = 0;
  while (at_ + digits < text_.size() && IsDigit(text_[at_ + digits])) {
    if (++digits > most) return Fail("a number of too many digits");
    number = number * 10 + (text_[at_ + digits - 1] - '0');
  }
  if (digits == 0) return Fail("a whole number is expected here");
  if (digits > 1 && text_[at_] == '0') return Fail("a number begins with no 0");
  at_ += digits;
  return true;
}

bool CertScan::Natural(Wide& number) { return Digits(kMostDigits, number); }

bool CertScan::Count(int64_t& count) {
  Wide number;
  if (!Digits(19, number)) return false;
  if (Below(std::numeric_limits<int64_t>::max(), number)) return Fail("a number beyond 64 bits");
  count = static_cast<int64_t>(number.bits());
  return true;
}

bool CertScan::Decimal(CertDecimal& decimal) {
  const size_t start = at_;
  if (!Digits(18, decimal.digits)) return false;
  decimal.places = 0;
  if (Sees(".")) {
    ++at_;
    while (at_ < text_.size() && IsDigit(text_[at_])) {
      if (++decimal.places > 18) return Fail("a number of too many decimals");
      decimal.digits = decimal.digits * 10 + (text_[at_++] - '0');
    }
    if (decimal.places == 0 || text_[at_ - 1] == '0') return Fail("a fraction ends with a digit above 0");
  }
  decimal.text = std::string(text_.substr(start, at_ - start));
  return true;
}

bool CertScan::Seconds(Wide& seconds) {
  if (!Digits(15, seconds) || !Take(".")) return false;
  for (int place = 0; place < 21; ++place) {
    if (at_ == text_.size() || !IsDigit(text_[at_])) return Fail("seconds have 21 decimals");
    seconds = seconds * 10 + (text_[at_++] - '0');
  }
  return true;
}

bool CertScan::Word(std::string& word) {
  size_t end = at_;
  while (end < text_.size() &&
         (IsDigit(text_[end]) || text_[end] == '_' || (text_[end] >= 'a' && text_[end] <= 'z'))) {
    ++end;
  }
  if (end == at_) return Fail("a word of a-z, 0-9 and _ is expected here");
  word = std::string(text_.substr(at_, end - at_));
  at_ = end;
  return true;
}

bool CertScan::Quoted(std::string& text) {
  if (!Take("\"")) return false;
  const size_t start = at_;
  while (at_ < text_.size() && text_[at_] != '"') {
    if (text_[at_] == '\\') ++at_;
    if (at_ >= text_.size() || text_[at_] < ' ' || text_[at_] > '~')
      return Fail("a text in quotes is printable");
    ++at_;
  }
  text = std::string(text_.substr(start, at_ - start));
  return Take("\"");
}

bool CertScan::Hash(std::string& hash) {
  for (size_t i = 0; i < 64; ++i) {
    const char c = at_ + i < text_.size() ? text_[at_ + i] : ' ';
    if (!IsDigit(c) && (c < 'a' || c > 'f')) return Fail("64 hexadecimal digits are expected here");
  }
  hash = std::string(text_.substr(at_, 64));
  at_ += 64;
  return true;
}

bool CertScan::Shape(std::vector<int64_t>& shape) {
  if (Sees("scalar")) return Take("scalar");
  do {
    int64_t extent = 0;
    if (shape.size() == kMostDims) return Fail("an array of too many dims");
    if (!shape.empty() && !Take("x")) return false;
    if (!Count(extent)) return false;
    shape.push_back(extent);
  } while (Sees("x"));
  return true;
}

bool CertScan::YesNo(bool& yes) {
  yes = Sees("yes");
  return Take(yes ? "yes" : "no");
}

}  // namespace twinforge
