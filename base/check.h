// A check that stays in release builds, for mistakes of ours.
//
// A user's mistake is an absl::Status (diagnostic.h), a rewrite that does not fit is
// a refusal (transforms/transform.h). What remains, a broken promise between two
// parts of the house, aborts with the place, the condition and a sentence:
//
//   TWIN_CHECK(a.size() == b.size(), "Concat built with unequal ranks");
#ifndef TWINFORGE_BASE_CHECK_H_
#define TWINFORGE_BASE_CHECK_H_

#include "absl/strings/string_view.h"

namespace twinforge {

// Prints an internal-error report to stderr and ends the process with exit status 70.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition, absl::string_view message);

}  // namespace twinforge

#define TWIN_CHECK(condition, message)                 \
  (static_cast<bool>(condition) ? static_cast<void>(0) \
                                : ::twinforge::CheckFailed(__FILE__, __LINE__, #condition, (message)))

#endif  // TWINFORGE_BASE_CHECK_H_
