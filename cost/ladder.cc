#include "cost/ladder.h"

#include <bit>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "cost/memory.h"

namespace twinforge {
namespace {

void Quantise(std::vector<std::vector<double>>& times) {
  double sum = 0;
  for (const std::vector<double>& op : times) sum += op.back();
  int exponent = 0;
  std::frexp(sum, &exponent);
  const double quantum = std::ldexp(1.0, exponent + 1 - 52);
  const double per_quantum = 1 / quantum;
  for (std::vector<double>& op : times) {
    for (double& time : op) time = std::floor(time * per_quantum) * quantum;  // powers of two: exact
  }
}

// The smallest power of two of shards, above the workload's own, at which the step fits and its exchanges are
// known; 0 where none up to 4,096 does, and then why, if that is the network.
struct Shards {
  int64_t fit = 0;
  absl::Status network;
};

Shards ShardsThatFit(const ChipFigures& chip, const Graph& graph, double memory_fraction, int64_t page,
                     Workload workload) {
  Shards shards;
  const int64_t places = workload.context + (workload.phase == Phase::kPrefill ? workload.past : int64_t{1});
  workload.shards = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(workload.shards) + 1));
  for (; workload.shards <= 4096; workload.shards *= 2) {
    const absl::StatusOr<StepTerms> terms = TermsOf(chip, graph, workload);
    if (!terms.ok()) continue;
    const int64_t needed = (terms->parameter_bytes + terms->cache_bytes).value();
    const Capacity capacity = CapacityOf(chip, *terms, places, memory_fraction, page);
    if (needed > capacity.usable_bytes || !capacity.feasible) continue;
    shards.network.Update(terms->network);
    if (!terms->network.ok()) continue;
    shards.fit = workload.shards;
    break;
  }
  return shards;
}

}  // namespace

void FillLadder(std::vector<RungRow> rungs, std::vector<std::vector<double>> times, Score& score) {
  Quantise(times);
  score.ladder = std::move(rungs);
  score.attribution.clear();
  for (size_t rung = 0; rung < score.ladder.size(); ++rung) {
    score.ladder[rung].seconds = 0;
    for (const std::vector<double>& op : times) score.ladder[rung].seconds += op[rung];
  }
  for (const std::vector<double>& op : times) {
    std::vector<double> steps = {op[0]};
    for (size_t rung = 1; rung < op.size(); ++rung) steps.push_back(op[rung] - op[rung - 1]);
    score.attribution.push_back(std::move(steps));
  }
}

void NoteShortfall(const ChipFigures& chip, const Graph& graph, double memory_fraction, int64_t page,
                   Score& score) {
  const Shards shards = ShardsThatFit(chip, graph, memory_fraction, page, score.workload);
  const std::optional<Diagnostic> unknown = DiagnosticOf(shards.network);
  score.shortfall = shards.fit > 0 ? absl::StrCat(shards.fit, " shards would do")
                    : unknown      ? absl::StrCat("more shards would hold it, but ", unknown->message)
                                   : "no power of two of shards both divides its sizes and fits";
}

}  // namespace twinforge
