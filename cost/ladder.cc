#include "cost/ladder.h"

#include <bit>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

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

// The smallest power of two of shards, above the workload's own, at which the step fits; 0 where none up to
// 4,096 does.
int64_t ShardsThatFit(const ChipFigures& chip, const Graph& graph, Workload workload) {
  workload.shards = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(workload.shards) + 1));
  for (; workload.shards <= 4096; workload.shards *= 2) {
    const absl::StatusOr<StepTerms> terms = TermsOf(chip, graph, workload);
    if (!terms.ok()) continue;
    if ((terms->parameter_bytes + terms->cache_bytes).value() <= chip.memory_bytes) return workload.shards;
  }
  return 0;
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

void NoteShortfall(const ChipFigures& chip, const Graph& graph, Score& score) {
  const int64_t shards = ShardsThatFit(chip, graph, score.workload);
  score.shortfall = shards > 0 ? absl::StrCat(shards, " shards would do")
                               : std::string("no power of two of shards both divides its sizes and fits");
}

}  // namespace twinforge
