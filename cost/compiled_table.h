// The predictor held against every compiled layer, each predicted by constants that never saw its model.
//
//   | rewrite | v4 | v5e | ... | all | same |     right signs of those beyond 1 %; rows within 1 %
//
// docs/cost_compiler.md carries this text word by word.
#ifndef TWINFORGE_COST_COMPILED_TABLE_H_
#define TWINFORGE_COST_COMPILED_TABLE_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "cost/compiled.pb.h"
#include "cost/compiled_rows.h"

namespace twinforge {

// One rewrite of one layer: its change of cycles against the layer as published.
struct CompiledTrial {
  const CompiledRow* row = nullptr;
  Phase phase = Phase::kDecode;
  double said = 0;       // by the compiler: -0.25 is a quarter fewer cycles
  double predicted = 0;  // out of sample
  double level = 0;      // predicted over said cycles of the rewritten layer, less 1

  bool same() const;   // within 1 %
  bool right() const;  // the same sign
};

// Of all rows that have a form and a source; source rows themselves are left away.
std::vector<CompiledTrial> Trials(const CompiledFit& fit, absl::Span<const CompiledRow> rows);

// Per rewrite and phase, for the fit's record.
void AddRecords(absl::Span<const CompiledTrial> trials, CompiledFit& fit);

// Markdown.
std::string CompiledTable(absl::Span<const CompiledTrial> trials);

}  // namespace twinforge

#endif  // TWINFORGE_COST_COMPILED_TABLE_H_
