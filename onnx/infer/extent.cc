#include "onnx/infer/extent.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace twinforge {
namespace {

using Monomial = std::vector<std::string>;

// dim += factor * symbols * other; false where that overflows or grows too large.
bool AddScaled(Dim::Terms& terms, const Dim& other, int64_t factor, const Monomial& symbols) {
  for (const auto& [names, coefficient] : other.terms()) {
    Monomial product = names;
    product.insert(product.end(), symbols.begin(), symbols.end());
    if (product.size() > kMostFactors) return false;
    std::sort(product.begin(), product.end());
    int64_t scaled = 0;
    if (__builtin_mul_overflow(coefficient, factor, &scaled)) return false;
    const auto at = terms.emplace(std::move(product), 0).first;
    if (__builtin_add_overflow(at->second, scaled, &at->second)) return false;
    if (at->second == 0) terms.erase(at);
    if (terms.size() > kMostTerms) return false;
  }
  return true;
}

// An order that products keep: by degree, then by names.
bool Before(const Monomial& a, const Monomial& b) {
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

const Dim::Terms::value_type& Leading(const Dim::Terms& terms) {
  return *std::max_element(terms.begin(), terms.end(),
                           [](const auto& a, const auto& b) { return Before(a.first, b.first); });
}

// a without the symbols of b; nullopt where b has others.
std::optional<Monomial> Without(const Monomial& a, const Monomial& b) {
  if (!std::includes(a.begin(), a.end(), b.begin(), b.end())) return std::nullopt;
  Monomial rest;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(rest));
  return rest;
}

int64_t FloorOf(int64_t a, int64_t divisor) {
  const int64_t quotient = a / divisor;
  return a % divisor < 0 ? quotient - 1 : quotient;
}

// Its coefficients have one sign, the constant aside: then the constant is its bound on that side.
std::optional<int64_t> BoundBySign(const Dim& dim, bool least) {
  int64_t constant = 0;
  for (const auto& [symbols, coefficient] : dim.terms()) {
    if (symbols.empty()) {
      constant = coefficient;
    } else if ((coefficient < 0) == least) {
      return std::nullopt;
    }
  }
  return constant;
}

}  // namespace

KnownDim DimSum(const KnownDim& a, const KnownDim& b) {
  if (!a || !b) return std::nullopt;
  Dim::Terms terms = a->terms();
  if (!AddScaled(terms, *b, 1, {})) return std::nullopt;
  return Dim::Of(std::move(terms));
}

KnownDim DimDifference(const KnownDim& a, const KnownDim& b) {
  if (!a || !b) return std::nullopt;
  Dim::Terms terms = a->terms();
  if (!AddScaled(terms, *b, -1, {})) return std::nullopt;
  return Dim::Of(std::move(terms));
}

KnownDim DimProduct(const KnownDim& a, const KnownDim& b) {
  if (IsNumber(a, 0) || IsNumber(b, 0)) return Dim(0);
  if (!a || !b) return std::nullopt;
  Dim::Terms terms;
  for (const auto& [symbols, coefficient] : b->terms()) {
    if (!AddScaled(terms, *a, coefficient, symbols)) return std::nullopt;
  }
  return Dim::Of(std::move(terms));
}

KnownDim DimProduct(const KnownDims& dims) {
  KnownDim product = Dim(1);
  for (const KnownDim& dim : dims) product = DimProduct(product, dim);
  return product;
}

KnownDim DimQuotient(const KnownDim& a, const KnownDim& b) {
  if (!a || !b || b->terms().empty()) return std::nullopt;
  Dim::Terms rest = a->terms(), quotient;
  const auto& [lead, divisor] = Leading(b->terms());
  for (size_t steps = 0; !rest.empty(); ++steps) {
    const auto [symbols, coefficient] = Leading(rest);
    const std::optional<Monomial> times = Without(symbols, lead);
    if (!times || steps > kMostTerms || divisor < 0 || coefficient == INT64_MIN || coefficient % divisor != 0)
      return std::nullopt;
    quotient[*times] = coefficient / divisor;
    if (!AddScaled(rest, *b, -(coefficient / divisor), *times)) return std::nullopt;
  }
  return Dim::Of(std::move(quotient));
}

KnownDim DimFloor(const KnownDim& a, int64_t divisor) {
  if (!a || divisor <= 0) return std::nullopt;
  Dim::Terms terms;
  for (const auto& [symbols, coefficient] : a->terms()) {
    if (!symbols.empty() && coefficient % divisor != 0) return std::nullopt;
    const int64_t quotient = FloorOf(coefficient, divisor);
    if (quotient != 0) terms[symbols] = quotient;
  }
  return Dim::Of(std::move(terms));
}

KnownDim DimCeil(const KnownDim& a, int64_t divisor) {
  if (divisor <= 0) return std::nullopt;
  return DimFloor(DimSum(a, Dim(divisor - 1)), divisor);
}

std::optional<int64_t> DimLeast(const Dim& dim) { return BoundBySign(dim, true); }
std::optional<int64_t> DimMost(const Dim& dim) { return BoundBySign(dim, false); }

bool IsNumber(const KnownDim& dim, int64_t number) { return dim && dim->value() == number; }

KnownDim DimMin(const KnownDim& a, const KnownDim& b) {
  const KnownDim difference = DimDifference(a, b);
  if (!difference) return std::nullopt;
  if (DimLeast(*difference).value_or(-1) >= 0) return b;
  if (DimMost(*difference).value_or(1) <= 0) return a;
  return std::nullopt;
}

KnownDim DimMax(const KnownDim& a, const KnownDim& b) {
  const KnownDim difference = DimDifference(a, b);
  if (!difference) return std::nullopt;
  if (DimLeast(*difference).value_or(-1) >= 0) return a;
  if (DimMost(*difference).value_or(1) <= 0) return b;
  return std::nullopt;
}

bool DimsDiffer(const KnownDim& a, const KnownDim& b) {
  if (!a || !b || *a == *b) return false;
  const KnownDim difference = DimDifference(a, b);
  if (!difference) return false;
  return DimLeast(*difference).value_or(0) > 0 || DimMost(*difference).value_or(0) < 0;
}

KnownDim DimMeet(const KnownDim& a, const KnownDim& b) {
  if (!a) return b;
  if (!b || a->value()) return a;
  return b->value() ? b : a;
}

KnownDim DimJoin(const KnownDim& a, const KnownDim& b) { return a == b ? a : std::nullopt; }

bool Broadcasts(const KnownDim& a, const KnownDim& b) {
  return !DimsDiffer(a, b) || !DimsDiffer(a, Dim(1)) || !DimsDiffer(b, Dim(1));
}

KnownDim DimBroadcast(const KnownDim& a, const KnownDim& b) {
  if (a && b && *a == *b) return a;
  if (IsNumber(a, 1)) return b;
  if (IsNumber(b, 1)) return a;
  // Never 1: then the other one is this one, or 1. A number first, it says more.
  const bool a_decides = DimsDiffer(a, Dim(1)), b_decides = DimsDiffer(b, Dim(1));
  if (a_decides && (a->value() || !b_decides || !b->value())) return a;
  if (b_decides) return b;
  return std::nullopt;
}

OnnxFact JoinFacts(const OnnxFact& a, const OnnxFact& b) {
  OnnxFact both;
  if (a.type == b.type) both.type = a.type;
  if (!a.shape || !b.shape || a.shape->size() != b.shape->size()) return both;
  both.shape.emplace();
  for (size_t d = 0; d < a.shape->size(); ++d) both.shape->push_back(DimJoin((*a.shape)[d], (*b.shape)[d]));
  if (!both.type || !a.elements || !b.elements || a.shape != b.shape) return both;
  both.elements.emplace();
  for (size_t k = 0; k < a.elements->size(); ++k)
    both.elements->push_back(DimJoin((*a.elements)[k], (*b.elements)[k]));
  return both;
}

}  // namespace twinforge
