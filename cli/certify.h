// Certificates on the command line: `score --certificate` writes one, `check` reads it.
#ifndef TWINFORGE_CLI_CERTIFY_H_
#define TWINFORGE_CLI_CERTIFY_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "cli/score_request.h"
#include "cli/verb.h"
#include "ir/graph.h"

namespace twinforge {

// TF1608 where something has this name already. An empty path is new.
absl::Status CheckFileIsNew(const std::string& path);

// Certifies the twin's score where there is a twin, else the source's, and says so in `outcome`. Nothing
// where `path` is empty.
absl::Status WriteCertificate(const std::string& path, const Graph& source, const std::optional<Graph>& twin,
                              const ScoreRequest& request, Outcome& outcome);

}  // namespace twinforge

#endif  // TWINFORGE_CLI_CERTIFY_H_
