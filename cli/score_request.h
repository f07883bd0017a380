// What `score` is asked, from flags or from a row of a table: one step, or an engine in steady state.
#ifndef TWINFORGE_CLI_SCORE_REQUEST_H_
#define TWINFORGE_CLI_SCORE_REQUEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/json.h"
#include "cli/verb.h"
#include "cost/serve.h"
#include "cost/workload.h"

namespace twinforge {

struct ScoreFlags {
  std::string chip;
  std::string phase = "decode";
  std::string routing = "same";
  std::string mesh, dtype, activation_dtype, kv_dtype, stack;
  int64_t chips = 0;  // 0: as many as the mesh has
  int64_t shards = 1;
  int64_t batch = 1;
  int64_t context = 1024;
  int64_t past = 0;
  int64_t chunk = 0;  // of --phase mixed
  int64_t microbatches = 1;
  bool rematerialise = false;
  Serving serving;
  std::vector<std::string> given;  // of a row: the flags whose cells are not empty, "--past"
};

// A flag that is a whole number, with what it may be.
struct ScoreNumber {
  absl::string_view flag;  // "--batch"
  int64_t least, most;
  int64_t* (*field)(ScoreFlags&);
};
absl::Span<const ScoreNumber> ScoreNumbers();

struct ScoreRequest {
  Workload workload;
  Serving serving;
  bool serves = false;
  bool deploys = false;  // a mesh is named: what does not fit on it is refused, else said beside the bounds
  std::string chip;      // its id, whichever of its names was given; as given where it is not known
  std::string stack, format;
};

// `config`: of the model, whose quantization_config says in which format it is stored where no flag does.
// TF1702 where chips and mesh disagree, TF1703 for a mixed step without a chunk and a chunk elsewhere, TF1704
// for a format that is not known.
absl::StatusOr<ScoreRequest> RequestOf(const ScoreFlags& flags, const JsonValue& config);

// Takes up the chip of `file`, if one is named; `chip` names it where nothing else does. TF1003 where there
// is no chip then.
absl::Status TakeUpChip(const std::string& verb, const std::string& file, std::string& chip);

}  // namespace twinforge

#endif  // TWINFORGE_CLI_SCORE_REQUEST_H_
