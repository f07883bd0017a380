// Arithmetic of extents and of small integers that may be known, as numbers or as polynomials.
//
//   DimSum(past, seq)              past + seq
//   DimQuotient(12*b*s, 4*s)       3*b
//   DimFloor(2*s + 3, 2)           s + 1
//
// What cannot be told is nullopt: unknown operands, a coefficient that overflows, a polynomial of more than
// kMostTerms terms, a quotient that is none. Comparisons take symbols for sizes, 0 or more.
#ifndef TWINFORGE_ONNX_INFER_EXTENT_H_
#define TWINFORGE_ONNX_INFER_EXTENT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "onnx/facts.h"

namespace twinforge {

inline constexpr size_t kMostTerms = 32;   // of a polynomial: bounds what a hostile file can cost
inline constexpr size_t kMostFactors = 8;  // of a monomial

using KnownDims = std::vector<KnownDim>;

KnownDim DimSum(const KnownDim& a, const KnownDim& b);
KnownDim DimDifference(const KnownDim& a, const KnownDim& b);
KnownDim DimProduct(const KnownDim& a, const KnownDim& b);
KnownDim DimProduct(const KnownDims& dims);
KnownDim DimQuotient(const KnownDim& a, const KnownDim& b);  // where a is a multiple of b as a polynomial
KnownDim DimFloor(const KnownDim& a, int64_t divisor);       // divisor > 0
KnownDim DimCeil(const KnownDim& a, int64_t divisor);
KnownDim DimMin(const KnownDim& a, const KnownDim& b);
KnownDim DimMax(const KnownDim& a, const KnownDim& b);

// Bounds that hold for all sizes of the symbols.
std::optional<int64_t> DimLeast(const Dim& dim);
std::optional<int64_t> DimMost(const Dim& dim);
bool IsNumber(const KnownDim& dim, int64_t number);

// Whether no sizes of the symbols make them equal, as far as their difference tells.
bool DimsDiffer(const KnownDim& a, const KnownDim& b);
// Of two that are equal in each run: the one that says more. nullopt if neither is known.
KnownDim DimMeet(const KnownDim& a, const KnownDim& b);
// What holds of both.
KnownDim DimJoin(const KnownDim& a, const KnownDim& b);
// Of axes that broadcast to each other (equal, or one of them 1).
KnownDim DimBroadcast(const KnownDim& a, const KnownDim& b);
bool Broadcasts(const KnownDim& a, const KnownDim& b);  // false: never

// What holds of two facts: of the branches of an If, of a loop's value before and after.
OnnxFact JoinFacts(const OnnxFact& a, const OnnxFact& b);

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_INFER_EXTENT_H_
