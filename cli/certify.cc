#include "cli/certify.h"

#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cli/new_folder.h"
#include "cost/certificate_estimates.h"

namespace twinforge {

absl::Status CheckFileIsNew(const std::string& path) {
  struct stat info = {};
  if (path.empty() || lstat(path.c_str(), &info) != 0) return absl::OkStatus();
  return Error(1608, path, "exists", "name a file that does not");
}

absl::Status WriteCertificate(const std::string& path, const Graph& source, const std::optional<Graph>& twin,
                              const ScoreRequest& request, Outcome& outcome) {
  if (path.empty()) return absl::OkStatus();
  TWIN_ASSIGN_OR_RETURN(const std::string text,
                        ForecastCertificate(twin ? *twin : source, twin ? &source : nullptr, request.chip,
                                            request.workload, request.stack, request.format));
  TWIN_RETURN_IF_ERROR(WriteNewFile(path, text));
  const char* who = twin ? "twin" : "source";
  absl::StrAppend(&outcome.human, "  certificate of the ", who, "'s bounds: ", path, "; `twinforge check ",
                  path, "` recomputes it\n");
  outcome.json["certificate"] = {{"path", path}, {"of", who}};
  outcome.done = absl::StrCat("the certificate is written to ", path);
  return absl::OkStatus();
}

}  // namespace twinforge
