// Answers of the TPU compiler, kept in a folder: what was asked once is not asked again.
//
//   AskOrRecall(question, "cache")     the second time in no time, and no library is loaded
//
// An answer belongs to the program, the topology, the options and the library (its version and its size),
// whose hash is the file's name. A file that is not whole is asked for anew. Where it ran out of time nothing
// is kept.
#ifndef TWINFORGE_COMPILER_ANSWER_STORE_H_
#define TWINFORGE_COMPILER_ANSWER_STORE_H_

#include <string>

#include "absl/status/statusor.h"
#include "compiler/ask.h"

namespace twinforge {

// `folder` is made where it is absent; empty: nothing is kept. Beside AskCompiler()'s refusals TF2110, where
// nothing can be written there.
absl::StatusOr<CompilerAnswer> AskOrRecall(const CompilerQuestion& question, const std::string& folder);

}  // namespace twinforge

#endif  // TWINFORGE_COMPILER_ANSWER_STORE_H_
