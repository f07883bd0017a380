// The families that are understood, one text file each (importers/families/), compiled into the binary.
#ifndef TWINFORGE_IMPORTERS_FAMILY_H_
#define TWINFORGE_IMPORTERS_FAMILY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "importers/family.pb.h"

namespace twinforge {

// All families, ascending by name.
const std::vector<FamilySpec>& AllFamilies();

// nullptr where no family has this model_type.
const FamilySpec* FindFamily(absl::string_view model_type);

// The text form, as in importers/families/. A mistake in it is described in the status.
absl::StatusOr<FamilySpec> ParseFamily(absl::string_view text, absl::string_view place);

}  // namespace twinforge

#endif  // TWINFORGE_IMPORTERS_FAMILY_H_
