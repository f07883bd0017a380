// Whether the keys that a family asks yes or no hold true or false: "x", 1 and [] are neither, and each
// runtime would take them its own way.
//
// Numbers, words and lists are checked where they are read (config_view.h).
#ifndef TWINFORGE_IMPORTERS_CONFIG_KINDS_H_
#define TWINFORGE_IMPORTERS_CONFIG_KINDS_H_

#include <set>
#include <string>

#include "absl/status/status.h"
#include "importers/config_view.h"
#include "importers/family.pb.h"

namespace twinforge {

// Keys by what the family takes from them.
struct FamilyKeys {
  std::set<std::string> flags;    // true or false
  std::set<std::string> numbers;  // where one is also asked yes or no, 0 and null are no
  std::set<std::string> words;    // one of listed values, words, or lists of words or numbers
};
FamilyKeys KeysOf(const FamilySpec& family);

// TF1406 for the first flag, by name, that the config has and that is neither true, false nor null.
absl::Status CheckFlags(const FamilySpec& family, const ConfigView& config);

}  // namespace twinforge

#endif  // TWINFORGE_IMPORTERS_CONFIG_KINDS_H_
