// What the cost model says of a device's memory and exchanges, beside what the TPU compiler made.
#ifndef TWINFORGE_CLI_COMPILE_PREDICTED_H_
#define TWINFORGE_CLI_COMPILE_PREDICTED_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "cli/compile_programs.h"
#include "cli/verb.h"
#include "compiler/record.pb.h"
#include "ir/graph.h"

namespace twinforge {

// Of one device and the whole model. Bytes with the padding of tiles; of weights each once, however many
// parts read them.
struct DeviceFigures {
  int64_t weight_bytes = 0;
  int64_t cache_bytes = 0;
  int64_t collectives = 0;
};

DeviceFigures CompiledFigures(const CompiledModel& model);
// From CountStep (cost/counts.h): the same step, with all but the newest token cached before. Its refusals.
absl::StatusOr<DeviceFigures> CountedFigures(const Graph& graph, const CompiledWorkload& workload,
                                             int64_t shards);

// Adds both to the outcome under `who`. What cannot be counted is said with its reason.
void SayPredicted(const std::string& who, const CompiledModel& model, const Graph& graph,
                  const CompiledWorkload& workload, int64_t shards, Outcome& outcome);

}  // namespace twinforge

#endif  // TWINFORGE_CLI_COMPILE_PREDICTED_H_
