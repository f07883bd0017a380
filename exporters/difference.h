// Where two texts that should be one are not, said so that a person can find it: a key, not a file.
//
//   "rope_theta" is 77, and should be 10000; 2 more keys differ
#ifndef TWINFORGE_EXPORTERS_DIFFERENCE_H_
#define TWINFORGE_EXPORTERS_DIFFERENCE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "base/json.h"

namespace twinforge {

// The first key, in the order of `right`, whose value differs, by its dotted path, with both values quoted
// and cut; "" where both say the same, in whatever order of keys.
std::string JsonDifference(const JsonValue& found, const JsonValue& right);

// The same for two documents that should be one text. Where one is no JSON, or they differ in spelling
// alone, it says so; "" for equal texts.
std::string DocumentDifference(absl::string_view found, absl::string_view right);

}  // namespace twinforge

#endif  // TWINFORGE_EXPORTERS_DIFFERENCE_H_
