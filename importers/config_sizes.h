// The sizes that a family names, read from config.json: from keys, or from each other.
//
// Each has a largest value, so that a config alone can't choose how much time and memory are taken before a
// tensor is seen: "hidden_size": 1099511627776 ends here, with its key and place.
#ifndef TWINFORGE_IMPORTERS_CONFIG_SIZES_H_
#define TWINFORGE_IMPORTERS_CONFIG_SIZES_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "importers/config_view.h"
#include "importers/family.pb.h"

namespace twinforge {

// By dim. TF1406 for a key out of range, TF1405 for one that is missing, TF1414 where sizes do not fit
// together or are beyond any model.
absl::StatusOr<std::map<std::string, int64_t>> SizesOf(const FamilySpec& family, const ConfigView& config);

// TF1414: `what` is larger than any machine.
absl::Status TooLarge(const ConfigView& config, absl::string_view what);

// "d_model / heads", "4 * d_model": from left to right, every division exact. `place` is for diagnostics.
absl::StatusOr<int64_t> Evaluate(absl::string_view expression, const std::map<std::string, int64_t>& dims,
                                 absl::string_view place);

}  // namespace twinforge

#endif  // TWINFORGE_IMPORTERS_CONFIG_SIZES_H_
