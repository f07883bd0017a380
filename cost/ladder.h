// Rungs from the times of ops, so that every sum is exact: internal to cost/.
#ifndef TWINFORGE_COST_LADDER_H_
#define TWINFORGE_COST_LADDER_H_

#include <vector>

#include "cost/chip.h"
#include "cost/score.h"
#include "cost/terms.h"

namespace twinforge {

// Sets ladder and attribution. `times` [op][rung], never decreasing; `rungs` without their seconds.
//
// All times are rounded down to multiples of one power of two, so coarse that no sum of them needs more than
// 52 bits: sums and differences of the ladder are then exact in any order. Each op loses less than
// 2^-50 of the whole step.
void FillLadder(std::vector<RungRow> rungs, std::vector<std::vector<double>> times, Score& score);

// ScoreGraph() where the step's terms are already known: those of `graph` on `chip` under `workload`.
absl::StatusOr<Score> ScoreTerms(const ChipFigures& chip, const StepTerms& terms, const Graph& graph,
                                 const Graph* useful, const Workload& workload);

// Sets `shortfall` to how many devices would do, where an engine takes `memory_fraction` of a device's memory
// for pages of `page` tokens: as many as the chip's network is known for, or why there are none.
void NoteShortfall(const ChipFigures& chip, const Graph& graph, double memory_fraction, int64_t page,
                   Score& score);

}  // namespace twinforge

#endif  // TWINFORGE_COST_LADDER_H_
