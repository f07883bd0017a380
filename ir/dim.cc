#include "ir/dim.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/diagnostic.h"

namespace twinforge {
namespace {

bool IsSymbol(absl::string_view text) {
  if (text.empty() || text.size() > 128) return false;
  if (!absl::ascii_isalpha(text[0]) && text[0] != '_') return false;
  return std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isalnum(c) || c == '_'; });
}

}  // namespace

Dim::Dim(int64_t value) {
  if (value != 0) terms_[{}] = value;
}

Dim Dim::Symbol(absl::string_view name) {
  TWIN_CHECK(IsSymbol(name), "a symbol is a letter followed by letters, digits and underscores");
  Dim dim;
  dim.terms_[{std::string(name)}] = 1;
  return dim;
}

std::optional<int64_t> Dim::value() const {
  if (terms_.empty()) return 0;
  if (terms_.size() == 1 && terms_.begin()->first.empty()) return terms_.begin()->second;
  return std::nullopt;
}

absl::StatusOr<Dim> Dim::CheckedSum(const Dim& other) const {
  Dim sum = *this;
  for (const auto& [symbols, coefficient] : other.terms_) {
    int64_t& at = sum.terms_[symbols];
    if (__builtin_add_overflow(at, coefficient, &at)) return Error(1501, "", "a size overflows");
    if (at == 0) sum.terms_.erase(symbols);
  }
  return sum;
}

Dim Dim::operator+(const Dim& other) const {
  absl::StatusOr<Dim> sum = CheckedSum(other);
  TWIN_CHECK(sum.ok(), "a size overflows");
  return *std::move(sum);
}

Dim Dim::operator*(const Dim& other) const {
  Dim product;
  for (const auto& [left, a] : terms_) {
    for (const auto& [right, b] : other.terms_) {
      std::vector<std::string> symbols = left;
      symbols.insert(symbols.end(), right.begin(), right.end());
      std::sort(symbols.begin(), symbols.end());
      Dim monomial;
      int64_t coefficient = 0;
      TWIN_CHECK(!__builtin_mul_overflow(a, b, &coefficient), "a size overflows");
      monomial.terms_[std::move(symbols)] = coefficient;
      product = product + monomial;
    }
  }
  return product;
}

std::optional<int64_t> Dim::Bind(const std::map<std::string, int64_t>& symbols) const {
  int64_t sum = 0;
  for (const auto& [names, coefficient] : terms_) {
    int64_t product = coefficient;
    for (const std::string& name : names) {
      auto at = symbols.find(name);
      if (at == symbols.end()) return std::nullopt;
      if (__builtin_mul_overflow(product, at->second, &product)) return std::nullopt;
    }
    if (__builtin_add_overflow(sum, product, &sum)) return std::nullopt;
  }
  return sum;
}

std::string Dim::Text() const {
  if (terms_.empty()) return "0";
  std::string text;
  // The constant has the empty monomial, which sorts first; it reads better last.
  auto append = [&text](const std::vector<std::string>& symbols, int64_t coefficient) {
    if (!text.empty()) absl::StrAppend(&text, " + ");
    if (symbols.empty() || coefficient != 1) absl::StrAppend(&text, coefficient);
    if (!symbols.empty() && coefficient != 1) absl::StrAppend(&text, "*");
    absl::StrAppend(&text, absl::StrJoin(symbols, "*"));
  };
  for (const auto& [symbols, coefficient] : terms_) {
    if (!symbols.empty()) append(symbols, coefficient);
  }
  auto constant = terms_.find({});
  if (constant != terms_.end()) append({}, constant->second);
  return text;
}

absl::StatusOr<Dim> Dim::Parse(absl::string_view text) {
  auto bad = [&](absl::string_view why) {
    return Error(1502, "", absl::StrCat("size \"", text.substr(0, 80), "\": ", why));
  };
  // Bounds what a hostile text can cost; real sizes have two or three terms.
  if (text.size() > 1000) return bad("too long");
  Dim sum;
  for (absl::string_view term : absl::StrSplit(text, '+')) {
    int64_t coefficient = 1;
    std::vector<std::string> symbols;
    for (absl::string_view factor : absl::StrSplit(term, '*')) {
      factor = absl::StripAsciiWhitespace(factor);
      int64_t number = 0;
      if (IsSymbol(factor)) {
        symbols.emplace_back(factor);
      } else if (absl::SimpleAtoi(factor, &number)) {
        if (__builtin_mul_overflow(coefficient, number, &coefficient)) return bad("overflows");
      } else {
        return bad("neither a number nor a symbol");
      }
    }
    std::sort(symbols.begin(), symbols.end());
    int64_t& at = sum.terms_[symbols];
    if (__builtin_add_overflow(at, coefficient, &at)) return bad("overflows");
    if (at == 0) sum.terms_.erase(symbols);
  }
  return sum;
}

}  // namespace twinforge
