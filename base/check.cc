#include "base/check.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace twinforge {

void CheckFailed(const char* file, int line, const char* condition, absl::string_view message) {
  std::fprintf(stderr,
               "internal error[TF7000]: %.*s\n"
               "  at: %s:%d\n"
               "  condition: %s\n"
               "  This is a bug in twinforge. Please report these lines with the command that led here.\n",
               static_cast<int>(message.size()), message.data(), file, line, condition);
  std::fflush(stderr);
  _exit(70);
}

}  // namespace twinforge
