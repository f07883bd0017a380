#include "compiler/apart.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"

namespace twinforge {
namespace {

constexpr int kReturned = 0;
constexpr int kNotWritten = 97;  // a write failed: the memory is full
constexpr int64_t kSaidBytes = 4 << 10;
constexpr int64_t kMostWritten = int64_t{1} << 30;

// A file in memory that goes when it is closed.
class MemoryFile {
 public:
  explicit MemoryFile(const char* name) : fd_(memfd_create(name, MFD_CLOEXEC)) {}
  ~MemoryFile() {
    if (fd_ >= 0) close(fd_);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  int fd() const { return fd_; }

  // The last `most` bytes.
  std::string End(int64_t most) const {
    const int64_t size = lseek(fd_, 0, SEEK_END);
    int64_t at = std::max<int64_t>(0, size - most);
    std::string text(static_cast<size_t>(std::max<int64_t>(0, size - at)), '\0');
    size_t have = 0;
    while (have < text.size()) {
      const ssize_t got = pread(fd_, text.data() + have, text.size() - have, at + static_cast<int64_t>(have));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      have += static_cast<size_t>(got);
    }
    text.resize(have);
    return text;
  }

 private:
  int fd_;
};

void WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) _exit(kNotWritten);
    bytes.remove_prefix(static_cast<size_t>(put));
  }
}

[[noreturn]] void BeTheChild(const std::function<void(const ApartWriter&)>& function, int seconds,
                             pid_t parent, int result, int said) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kNotWritten);  // it died before
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  for (const int number : {SIGALRM, SIGABRT, SIGSEGV, SIGINT, SIGTERM}) ::signal(number, SIG_DFL);
  sigset_t all;
  sigemptyset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  dup2(said, STDOUT_FILENO);
  dup2(said, STDERR_FILENO);
  alarm(static_cast<unsigned>(seconds));
  function([result](absl::string_view bytes) { WriteAll(result, bytes); });
  _exit(kReturned);  // destructors of the library are slow, and nobody wants them
}

}  // namespace

absl::StatusOr<ApartEnd> RunApart(const std::function<void(const ApartWriter&)>& function, int seconds) {
  const MemoryFile result("result");
  const MemoryFile said("said");
  if (result.fd() < 0 || said.fd() < 0) {
    return Error(2105, "the TPU compiler", absl::StrCat("no buffer for its answer: ", std::strerror(errno)));
  }
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) {
    return Error(2105, "the TPU compiler", absl::StrCat("no process for it: ", std::strerror(errno)));
  }
  if (child == 0) BeTheChild(function, seconds, parent, result.fd(), said.fd());
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR)
      return Error(2105, "the TPU compiler", absl::StrCat("its process is lost: ", std::strerror(errno)));
  }
  ApartEnd end;
  end.said = said.End(kSaidBytes);
  if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
  if (WIFEXITED(status)) end.status = WEXITSTATUS(status);
  end.timed_out = end.signal == SIGALRM;
  end.finished = WIFEXITED(status) && end.status == kReturned;
  end.written = result.End(kMostWritten);
  return end;
}

std::string HowItEnded(const ApartEnd& end, int seconds) {
  if (end.timed_out) return absl::StrCat("took more than ", seconds, " seconds");
  if (end.signal == SIGKILL) return "was killed, as when the memory is full";
  if (end.signal != 0) {
    const char* const name = sigabbrev_np(end.signal);
    return absl::StrCat("ended by signal ", end.signal,
                        name == nullptr ? "" : absl::StrCat(" (SIG", name, ")"));
  }
  if (end.status == kNotWritten) return "could not hand over its answer";
  return absl::StrCat("ended itself with status ", end.status);
}

}  // namespace twinforge
