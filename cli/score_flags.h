// Which flags of `score` go together: a table, so that a flag that would change nothing is refused by name.
//
//   --phase decode --past 500     TF1003 --past: does not go with --phase decode; --phase prefill takes it
//   --skip-step pad_ffn           TF1003 --skip-step: does nothing without --recipe
#ifndef TWINFORGE_CLI_SCORE_FLAGS_H_
#define TWINFORGE_CLI_SCORE_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "cli/verb.h"

namespace twinforge {

// The names of flags that were given, as typed in full: "--past"; "MODEL" where a model was named.
std::vector<std::string> GivenOn(const CLI::App& verb);

// TF1003 for the first of `given` that the phase does not take.
absl::Status CheckPhase(const std::vector<std::string>& given, absl::string_view phase);

// TF1003 for the first of `given` that needs another one, or that a table of rows does not take.
absl::Status CheckCompany(const std::vector<std::string>& given);

}  // namespace twinforge

#endif  // TWINFORGE_CLI_SCORE_FLAGS_H_
