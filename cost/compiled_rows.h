// The compiled layers: what the TPU compiler said of eight public models and five heads, row by row.
//
// compiled/layers.csv is the condensed table (bench/fit_compiled makes it from the whole one): generation,
// model, phase, rewrite, mode, its cycle estimate, and how much of that are copies. A row's form says what
// its words mean:
//
//   v5e,phi3,decode8,w_in_out,default      every weight stored [in, out]
#ifndef TWINFORGE_COST_COMPILED_ROWS_H_
#define TWINFORGE_COST_COMPILED_ROWS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/csv.h"
#include "cost/compiled_layer.h"

namespace twinforge {

class CompiledFacts;  // compiled.proto

struct CompiledRow {
  std::string generation;  // "7x"
  std::string model;
  std::string phase;    // "decode8", "decode64", "prefill"
  std::string rewrite;  // "src", "fqkv", ...
  std::string
      mode;  // default: the layouts of plain arguments; auto, autow: chosen by the compiler (all, weights)
  double cycles = 0;
  int64_t copies = 0;
  double copy_cycles = 0;
  int32_t source = -1;  // the row of the same model, phase, generation and mode as published; -1: none

  std::string Key() const;  // "v5e phi3 decode8 w_in_out"
};

// The facts file, parsed once.
const CompiledFacts& Facts();

// A table that the build carries or a fit reads; one that is malformed is our own fault.
CsvTable CompiledTableOf(absl::string_view csv);

// Rows of a table of at least the columns above, by the names in its first line. Source rows are found.
std::vector<CompiledRow> ParseCompiledRows(absl::string_view csv);

// The embedded table, on which the constants are fitted.
absl::Span<const CompiledRow> CompiledRows();

// Layers of other models, compiled with the same compiler when the predictor's terms stood; in no fit.
absl::Span<const CompiledRow> UnseenRows();

// What was compiled. Empty where the predictor has no form for it: several devices (collectives carry no
// estimate), ragged products (custom calls), rows placed in VMEM.
std::optional<CompiledForm> FormOfRow(const CompiledRow& row);
CompiledStep StepOfPhase(absl::string_view phase);

}  // namespace twinforge

#endif  // TWINFORGE_COST_COMPILED_ROWS_H_
