#include "cli/progress.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "report/table.h"

namespace twinforge {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kPlainSeconds = 10;  // between lines off a terminal
constexpr double kTtySeconds = 0.1;

struct State {
  std::mutex mutex;
  Clock::time_point begin = Clock::now();
  Clock::time_point last = Clock::now();
};

double Since(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

std::string Line(const std::string& what, const Progress& p, double elapsed) {
  const double rate = elapsed > 0 ? static_cast<double>(p.bytes_done) / elapsed : 0;
  const double left = rate > 0 ? static_cast<double>(p.bytes_total - p.bytes_done) / rate : 0;
  const double share =
      p.bytes_total > 0 ? static_cast<double>(p.bytes_done) / static_cast<double>(p.bytes_total) : 1;
  return absl::StrCat(what, ": ", HumanBytes(p.bytes_done), " of ", HumanBytes(p.bytes_total), " (",
                      Percent(share), "), ", HumanBytes(static_cast<int64_t>(rate)), "/s, ",
                      absl::StrFormat("%.0f s left", left));
}

}  // namespace

std::function<void(const Progress&)> MakeProgress(const std::string& mode, const std::string& what) {
  if (mode == "none") return [](const Progress&) {};
  const bool tty = mode == "tty" || (mode == "auto" && isatty(STDERR_FILENO) != 0);
  auto state = std::make_shared<State>();
  return [tty, what, state](const Progress& progress) {
    const std::lock_guard<std::mutex> lock(state->mutex);
    const bool done = progress.bytes_done >= progress.bytes_total;
    if (Since(state->last) < (tty ? kTtySeconds : kPlainSeconds) && !(tty && done)) return;
    state->last = Clock::now();
    const std::string line = Line(what, progress, Since(state->begin));
    std::fprintf(stderr, tty ? "\r%-78s%s" : "%s%s", line.c_str(), !tty || done ? "\n" : "");
    std::fflush(stderr);
  };
}

}  // namespace twinforge
