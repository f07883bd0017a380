// What a chip would charge for one step: exact counts and proved bounds, rungs R0 to R3.
//
// No constant here was ever fitted. Counts are int64 with overflow checks; every chip
// number comes from cost/chips/*.textproto with its source line; an unknown chip, dtype or op is a typed
// refusal (TF17xx), never a borrowed number. See docs/cost.md for each rung and formula.
#ifndef TWINFORGE_COST_SCORE_H_
#define TWINFORGE_COST_SCORE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cost/workload.h"
#include "ir/graph.h"

namespace twinforge {

// Counts of one node under a workload, all devices together. Only matrix products count as flops; elementwise
// work has no published rate on most chips and enters no bound.
struct OpCount {
  std::string path;
  std::string op;
  int64_t useful_flops = 0;      // 2 * multiply-adds, at logical sizes: of the source where one is given
  int64_t issued_flops = 0;      // at the twin's sizes, its padding and replication included
  int64_t weight_bytes = 0;      // stored bytes this node must read
  int64_t cache_bytes = 0;       // KV or latent cache read and written
  int64_t activation_bytes = 0;  // operands and results at their dtype
  int64_t tile_flops = 0;        // what the chip's matrix units spend, idle places included
  int64_t memory_bytes = 0;      // what must cross the chip's memory bus, tile padding included
  std::string note;              // assumptions: "bf16; every token takes the same experts"
};

struct RungRow {
  std::string rung;     // "R0"
  std::string name;     // "peak"
  double seconds = 0;   // least time of the step at this rung
  char evidence = 'B';  // B: bound
};

struct Score {
  std::string chip;
  Workload workload;
  std::vector<OpCount> ops;
  std::vector<RungRow> ladder;  // R0..R3, never decreasing
  // per op and rung: contribution to the rung's step up; sums are exact to the last bit of the ladder's
  // differences
  std::vector<std::vector<double>> attribution;  // [op][rung]
  std::vector<int64_t> passes;                   // of each pipeline stage: how often its ops count
  int64_t parameter_bytes = 0;                   // per device, of the fullest stage
  int64_t cache_bytes = 0;                       // per device, at this workload
  int64_t memory_bytes = 0;                      // of one device
  bool feasible = true;                          // parameters and cache fit
  std::string shortfall;         // where they don't: what is missing, and how many shards would do
  double tokens_per_second = 0;  // at R3, so at most; 0 where the step is not feasible
};

// `useful` gives R0 its operations: the source model's graph; null: `graph` itself.
// Refuses: unknown chip (TF1701), sizes that the shards don't divide (TF1702), a workload out of range
// (TF1703), a dtype that the chip has no way to multiply (TF1704), a phase that the graph does not have
// (TF1705), a number that the chip file lacks (TF1706), counts beyond int64 (TF1707).
absl::StatusOr<Score> ScoreGraph(const Graph& graph, const Graph* useful, const std::string& chip,
                                 const Workload& workload);

// ---- chips

struct ChipSummary {
  std::string id;    // "v6e"
  std::string name;  // "TPU v6e"
  std::vector<std::string> aliases;
  int64_t lanes = 0;  // 0: not a TPU
  int64_t mxu = 0;
};
std::vector<ChipSummary> AllChips();
absl::StatusOr<ChipSummary> FindChip(const std::string& id);  // TF1701 with the nearest name
absl::StatusOr<std::string> ChipText(const std::string& id);  // the textproto, for `chip show`
// Findings of `chip lint`: peak recomputed from units and clock off by more than 3 %, number without source.
std::vector<std::string> LintChips();

}  // namespace twinforge

#endif  // TWINFORGE_COST_SCORE_H_
