// Asks the TPU compiler about one program: what callers use.
//
//   AskCompiler({.library = *FindCompilerLibrary(""), .topology = *ParseTopology("v6e:2x2"), .program =
//   text})
//     -> the optimised program, its memory; or the compiler's refusal in its own words
//
// The compiler runs in a process of its own, so that its crash is an answer (a refusal that says so).
#ifndef TWINFORGE_COMPILER_ASK_H_
#define TWINFORGE_COMPILER_ASK_H_

#include <string>

#include "absl/status/statusor.h"
#include "compiler/answer.pb.h"
#include "compiler/compile_options.h"
#include "compiler/library.h"
#include "compiler/topology.h"

namespace twinforge {

struct CompilerQuestion {
  CompilerLibrary library;
  TpuTopology topology;
  std::string program;  // StableHLO text
  CompilerFlags flags = {{"xla_msa_enable", "false"}};
  int seconds = 600;  // after which it is stopped
};

// The answer's stage is DONE, or COMPILE with an error: the compiler refuses this program, or it crashed on
// it. TF2102: the library is no plugin that we can call. TF2103: it does not know the topology, or the
// program has more parts than the topology has devices. TF2104: it took more time than allowed. TF2105: no
// process or memory for it.
absl::StatusOr<CompilerAnswer> AskCompiler(const CompilerQuestion& question);

}  // namespace twinforge

#endif  // TWINFORGE_COMPILER_ASK_H_
