// A model's programs for the TPU compiler: one layer of each kind unrolled, what precedes and what follows
// them.
//
// The compiler's estimate hides the bodies of loops and a whole model takes hours, so parts are compiled and
// their figures counted as often as the model has them.
#ifndef TWINFORGE_CLI_COMPILE_PROGRAMS_H_
#define TWINFORGE_CLI_COMPILE_PROGRAMS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/record.pb.h"
#include "ir/graph.h"

namespace twinforge {

// The step that the programs take: decode of one new token a sequence into a cache of `context` places, or
// prefill of `context` tokens.
struct CompiledWorkload {
  std::string phase = "decode";
  int64_t batch = 1;
  int64_t context = 1024;
};

struct ProgramToCompile {
  CompiledModule about;  // kind, count, note
  std::string text;      // StableHLO
  std::vector<std::string> arguments;
  std::vector<std::string> kinds;  // of the arguments: "weight", "cache", "input"
};

// As reference/stablehlo writes them; its refusals (TF162x).
absl::StatusOr<std::vector<ProgramToCompile>> ProgramsOf(const Graph& graph,
                                                         const CompiledWorkload& workload);

CompiledWorkload WorkloadOf(const CompileRecord& record);

// Why the record is no evidence that `graph` compiles.
struct NotAttainable {
  int code = 0;  // 2109: it is not of this graph's programs; 0: it is, and the compiler refused one
  std::string reason;
};

// Nothing: each program of the graph for the record's step, as written anew, is in it, as often as the graph
// has it and with the same arguments, compiled.
absl::StatusOr<std::optional<NotAttainable>> WhyNotAttainable(const CompileRecord& record,
                                                              const Graph& graph);

}  // namespace twinforge

#endif  // TWINFORGE_CLI_COMPILE_PROGRAMS_H_
