// The size of an activation's axis: a number, or a polynomial over named symbols.
//
//   batch        past + seq        2*seq*heads + 4
//
// Canonical: monomials sorted, coefficients nonzero, so equal sizes have equal texts.
// A workload of the cost model binds the symbols. Weight sizes are always numbers and
// do not use this type.
#ifndef TWINFORGE_IR_DIM_H_
#define TWINFORGE_IR_DIM_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace twinforge {

class Dim {
 public:
  // Sorted symbols of a monomial (repeated for powers) -> coefficient, never 0.
  using Terms = std::map<std::vector<std::string>, int64_t>;
  Dim() = default;     // 0
  Dim(int64_t value);  // NOLINT: a number is a size
  static Dim Symbol(absl::string_view name);

  std::optional<int64_t> value() const;   // the number, if it is one
  Dim operator+(const Dim& other) const;  // REQUIRES: no coefficient overflows
  Dim operator*(const Dim& other) const;
  // The sum, or TF1501 where a coefficient overflows: for sizes that a text gave.
  absl::StatusOr<Dim> CheckedSum(const Dim& other) const;
  const Terms& terms() const { return terms_; }
  static Dim Of(Terms terms) {  // REQUIRES: monomials sorted, no coefficient 0
    Dim dim;
    dim.terms_ = std::move(terms);
    return dim;
  }
  bool operator==(const Dim& other) const { return terms_ == other.terms_; }
  // The number when every symbol is bound; nullopt if one is not, or on overflow.
  std::optional<int64_t> Bind(const std::map<std::string, int64_t>& symbols) const;

  std::string Text() const;
  static absl::StatusOr<Dim> Parse(absl::string_view text);

 private:
  Terms terms_;
};

}  // namespace twinforge

#endif  // TWINFORGE_IR_DIM_H_
