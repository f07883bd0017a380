// Rotary position settings, in either of the library's spellings:
//
//   "rope_theta": 10000.0, "rope_scaling": {"type": "yarn", "factor": 40, ...}
//   "rope_parameters": {"rope_theta": 10000.0, "rope_type": "yarn", "factor": 40, ...}
//
// The result is one Rope attribute. A scaling kind that is not known, or that the family's runtime does not
// take, is refused (TF1407): a wrong rotation passes every shape check and ruins every answer.
#ifndef TWINFORGE_IMPORTERS_ROPE_CONFIG_H_
#define TWINFORGE_IMPORTERS_ROPE_CONFIG_H_

#include "absl/status/statusor.h"
#include "importers/config_view.h"
#include "ir/ops.pb.h"

namespace twinforge {

// `turning_dim` is the size of a head, or of its rotating part where that is stored apart.
absl::StatusOr<Rope> RopeFromConfig(const RopeSpec& spec, const ConfigView& config, int64_t turning_dim,
                                    absl::string_view architecture);

// Every key that may say the rotary base: one that is there must be written with the others.
std::vector<std::string> ThetaKeys();

// The dotted key that holds theta in this config: where it would be written.
std::string ThetaKey(const ConfigView& config);

}  // namespace twinforge

#endif  // TWINFORGE_IMPORTERS_ROPE_CONFIG_H_
