// The TPU compiler's cycles of one layer, repeated by constants.
//
//   cycles = sum over terms of constant[generation, phase, term] * amount[term]
//
// The constants are the compiler's habits (a fixed cost per product, cycles per byte by the side that lies
// along the lanes, copies of weights that lie the wrong way round), not a chip's physics. They are fitted by
// one command, bench/fit_compiled, into compiled/cycles.textproto, once with all models and once without
// each: what is said of the predictor's quality uses only constants that never saw the model
// (docs/cost_compiler.md).
#ifndef TWINFORGE_COST_COMPILED_CYCLES_H_
#define TWINFORGE_COST_COMPILED_CYCLES_H_

#include <optional>

#include "absl/strings/string_view.h"
#include "cost/compiled_layer.h"

namespace twinforge {

class CompiledFit;             // compiled.proto
class CompiledGenerationFile;  // compiled.proto
class CompiledRecord;          // compiled.proto

// The embedded constants.
const CompiledFit& Fit();

// By the tables' word ("7x") or the chip's id ("tpu7x"); null: never compiled for.
const CompiledGenerationFile* FindGeneration(absl::string_view name);

// How well models that were left out were predicted; null: never tried.
const CompiledRecord* FindRecord(absl::string_view rewrite, Phase phase);

absl::string_view Name(Phase phase);  // "decode"

// Cycles of a layer or head; empty where no layer was compiled for this generation and phase, since no
// constant of another generation stands in. `left_out`: with constants that never saw this model's rows.
std::optional<double> LayerCycles(const CompiledFit& fit, absl::string_view generation,
                                  const CompiledForm& form, const CompiledStep& step,
                                  absl::string_view left_out = "");

// Cycles of one product alone.
std::optional<double> ProductCycles(const CompiledFit& fit, absl::string_view generation,
                                    const CompiledProduct& product);

}  // namespace twinforge

#endif  // TWINFORGE_COST_COMPILED_CYCLES_H_
