// A function in a process of its own: whatever becomes of it, the caller goes on.
//
//   RunApart([](const ApartWriter& write) { write(Risky()); }, 60)
//     -> what it wrote, how it ended, and the last that it said on stdout and stderr
//
// For a library that may abort, hang or fill the memory. The child is a fork and shares the caller's memory
// as it was; it must not rely on other threads, and is killed when the caller dies. Its standard streams go
// to a buffer.
#ifndef TWINFORGE_COMPILER_APART_H_
#define TWINFORGE_COMPILER_APART_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace twinforge {

using ApartWriter = std::function<void(absl::string_view)>;

struct ApartEnd {
  bool finished = false;   // the function returned
  bool timed_out = false;  // it was killed after `seconds`
  int signal = 0;          // that ended it
  int status = 0;          // with which it ended itself
  std::string written;     // all of it, or what there was when it ended
  std::string said;        // the end of its stdout and stderr, at most 4 KiB
};

// Only a process that cannot be started at all is a failure (TF2105).
absl::StatusOr<ApartEnd> RunApart(const std::function<void(const ApartWriter&)>& function, int seconds);

// How it ended, in words: "aborted (signal 6)", "took more than 60 seconds".
std::string HowItEnded(const ApartEnd& end, int seconds);

}  // namespace twinforge

#endif  // TWINFORGE_COMPILER_APART_H_
