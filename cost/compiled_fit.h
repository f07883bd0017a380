// Fits the constants of compiled_cycles.h from the two tables, and nothing else.
//
// Least squares with constants that cannot be negative, on cycles relative to the layer as published, so that
// a large model weighs as much as a small one. Each row enters twice: as itself, and as its difference from
// its source row, which is what a sign is made of. First one set of constants for all generations, cycles
// scaled by bytes a cycle; then one for each generation, drawn to the common one by a ridge, the more
// strongly the fewer models were compiled for it (v4, v5p: three). Single products of aot.csv enter each fit
// too.
#ifndef TWINFORGE_COST_COMPILED_FIT_H_
#define TWINFORGE_COST_COMPILED_FIT_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cost/compiled.pb.h"
#include "cost/compiled_layer.h"
#include "cost/compiled_rows.h"

namespace twinforge {

// A row of aot.csv that is one product of two operands held in HBM.
struct CompiledProductRow {
  std::string generation;
  CompiledProduct product;
  double cycles = 0;
};

// Of the columns generation, op, mode, shapes, dtype, M, K, N, B, est_cycles.
std::vector<CompiledProductRow> ParseCompiledProducts(absl::string_view csv);

// All constants, with each model left out in turn. Records are left empty: they need the constants first
// (compiled_table.h).
CompiledFit FitCompiled(absl::Span<const CompiledRow> rows, absl::Span<const CompiledProductRow> products);

// Least squares A x = b with x >= 0, by coordinate descent on the normal equations.
std::vector<double> NonNegativeLeastSquares(const std::vector<std::vector<double>>& a,
                                            const std::vector<double>& b);

}  // namespace twinforge

#endif  // TWINFORGE_COST_COMPILED_FIT_H_
