// Disks that are full, calls that fail, writes that are short: a clean exit 5 or 6, nothing
// under the final name unless it is whole, and the next run finishes.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "base/diagnostic.h"
#include "exporters/exporter.h"
#include "tests/exporters/fixture.h"

namespace twinforge {
namespace {

// The `victim`-th call, of those that can fail, returns -error.
class FailingFiles : public FileSystem {
 public:
  FailingFiles(int64_t victim, int error) : victim_(victim), error_(error) {}
  bool struck() const { return calls_ >= victim_; }

  int Open(const std::string& path, OpenMode mode) override {
    // Writing past the cache is done where it can be; that it can't is no failure (below).
    if (mode == OpenMode::kDirect) return FileSystem::Open(path, mode);
    return Fails() ? -error_ : FileSystem::Open(path, mode);
  }
  int64_t Write(int fd, const std::byte* data, int64_t count, int64_t offset) override {
    if (!Fails()) return FileSystem::Write(fd, data, count, offset);
    FileSystem::Write(fd, data, count / 2, offset);  // what a full disk does: some, then no more
    return -error_;
  }
  int Allocate(int fd, int64_t bytes) override { return Fails() ? -error_ : FileSystem::Allocate(fd, bytes); }
  int Truncate(int fd, int64_t bytes) override { return Fails() ? -error_ : FileSystem::Truncate(fd, bytes); }
  int Sync(int fd) override { return Fails() ? -error_ : FileSystem::Sync(fd); }
  int MakeFolder(const std::string& path) override {
    return Fails() ? -error_ : FileSystem::MakeFolder(path);
  }
  int Rename(const std::string& from, const std::string& to) override {
    return Fails() ? -error_ : FileSystem::Rename(from, to);
  }
  int Remove(const std::string& path) override { return Fails() ? -error_ : FileSystem::Remove(path); }

 private:
  bool Fails() { return ++calls_ == victim_; }
  int64_t victim_;
  int error_;
  int64_t calls_ = 0;
};

struct Fault {
  int error;
  ExitCode exit;
};

class Faults : public ::testing::TestWithParam<Fault> {};

TEST_P(Faults, AtEveryCallEndCleanlyAndCanBeRepeated) {
  Model model = Twin(Rewriting::kPad);
  ExportOptions options = SmallTiles(Target::kHf);
  TempFolder undisturbed;
  ASSERT_TRUE(Forge(model, options, undisturbed / "out").ok());
  const Tree expected = ReadTree(undisturbed / "out");
  for (int64_t victim = 1;; ++victim) {
    SCOPED_TRACE(victim);
    TempFolder temp;
    FailingFiles files(victim, GetParam().error);
    options.seams.files = &files;
    absl::Status status = Forge(model, options, temp / "out").status();
    options.seams.files = nullptr;
    if (!files.struck()) {
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_GT(victim, 60);
      break;
    }
    ASSERT_FALSE(status.ok()) << "a failed call went unnoticed";
    EXPECT_EQ(ExitCodeOf(status), GetParam().exit) << status;
    if (std::filesystem::exists(temp / "out")) {
      Tree tree = ReadTree(temp / "out");
      tree.erase(".journal");
      ASSERT_TRUE(tree == expected);
      if (!std::filesystem::exists(temp / "out/.journal")) continue;
    }
    auto again = Forge(model, options, temp / "out");
    ASSERT_TRUE(again.ok()) << again.status();
    ASSERT_TRUE(ReadTree(temp / "out") == expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Errors, Faults,
                         ::testing::Values(Fault{ENOSPC, ExitCode::kResources},
                                           Fault{EDQUOT, ExitCode::kResources},
                                           Fault{EIO, ExitCode::kTransient}, Fault{EROFS, ExitCode::kUsage}));

TEST(Faults, ShortWritesAreContinued) {
  struct ShortFiles : FileSystem {
    int64_t Write(int fd, const std::byte* data, int64_t count, int64_t offset) override {
      ++calls;
      if (calls % 3 == 0) return -EINTR;
      return FileSystem::Write(fd, data, std::min<int64_t>(count, 1 + calls % 701), offset);
    }
    int64_t Read(int fd, std::byte* data, int64_t count, int64_t offset) override {
      return FileSystem::Read(fd, data, std::min<int64_t>(count, 333), offset);
    }
    int64_t calls = 0;
  } files;
  Model model = Twin(Rewriting::kPad);
  ExportOptions options = SmallTiles(Target::kHf);
  TempFolder temp;
  ASSERT_TRUE(Forge(model, options, temp / "whole").ok());
  options.seams.files = &files;
  auto result = Forge(model, options, temp / "short");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(ReadTree(temp / "short") == ReadTree(temp / "whole"));
  EXPECT_GT(files.calls, 300);
}

// File systems that have no way past the cache, or take only larger blocks there, get the same bytes.
TEST(Faults, WithoutAWayPastTheCacheTheBytesAreTheSame) {
  struct NoDirect : FileSystem {
    int Open(const std::string& path, OpenMode mode) override {
      return mode == OpenMode::kDirect ? -EINVAL : FileSystem::Open(path, mode);
    }
  } none;
  struct LargeBlocks : FileSystem {
    int Open(const std::string& path, OpenMode mode) override {
      int fd = FileSystem::Open(path, mode);
      if (mode == OpenMode::kDirect) direct = fd;
      return fd;
    }
    int64_t Write(int fd, const std::byte* data, int64_t count, int64_t offset) override {
      return fd == direct ? -EINVAL : FileSystem::Write(fd, data, count, offset);
    }
    int Close(int fd) override {
      if (fd == direct) direct = -1;
      return FileSystem::Close(fd);
    }
    int direct = -1;
  } large;
  Model model = Twin(Rewriting::kPad);
  ExportOptions options = SmallTiles(Target::kHf);
  TempFolder temp;
  ASSERT_TRUE(Forge(model, options, temp / "plain").ok());
  options.seams.files = &none;
  ASSERT_TRUE(Forge(model, options, temp / "none").ok());
  options.seams.files = &large;
  ASSERT_TRUE(Forge(model, options, temp / "large").ok());
  EXPECT_TRUE(ReadTree(temp / "none") == ReadTree(temp / "plain"));
  EXPECT_TRUE(ReadTree(temp / "large") == ReadTree(temp / "plain"));
}

TEST(Faults, AWriteThatMovesNothingIsAnErrorAndNoLoop) {
  struct StuckFiles : FileSystem {
    int64_t Write(int, const std::byte*, int64_t, int64_t) override { return 0; }
  } files;
  TempFolder temp;
  ExportOptions options = SmallTiles(Target::kHf);
  options.seams.files = &files;
  absl::Status status = Forge(Twin(Rewriting::kPad), options, temp / "out").status();
  EXPECT_EQ(DiagnosticOf(status).value_or(Diagnostic()).code, 1606) << status;
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kTransient);
}

// Bytes that were noted and then changed on disk are found by their hash, and made again.
TEST(Faults, DamageBetweenTwoRunsIsRepaired) {
  Model model = Twin(Rewriting::kPad);
  ExportOptions options = SmallTiles(Target::kHf);
  options.shard_bytes = 1 << 20;  // one file, so that none is finished
  TempFolder temp;
  ASSERT_TRUE(Forge(model, options, temp / "whole").ok());
  FailingFiles files(40, EIO);
  options.seams.files = &files;
  ASSERT_FALSE(Forge(model, options, temp / "out").ok());
  std::string partial;
  for (const auto& entry : std::filesystem::directory_iterator(temp.path())) {
    if (entry.path().string().find(".partial-") != std::string::npos) partial = entry.path();
  }
  std::string bytes = ReadFile(partial + "/model.safetensors");
  bytes[9000] ^= 32;
  WriteFile(partial + "/model.safetensors", bytes);
  options.seams.files = nullptr;
  auto again = Forge(model, options, temp / "out");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_GT(again->bytes_reused, 0);
  EXPECT_TRUE(ReadTree(temp / "out") == ReadTree(temp / "whole"));
}

// The operating system's own refusal, not ours: a limit on the size of files.
TEST(Faults, ARealLimitOnFileSizesIsExitFive) {
  TempFolder temp;
  Model model = Twin(Rewriting::kPad);
  pid_t child = fork();
  if (child == 0) {
    rlimit limit = {20'000, 20'000};
    setrlimit(RLIMIT_FSIZE, &limit);
    _exit(static_cast<int>(ExitCodeOf(Forge(model, SmallTiles(Target::kHf), temp / "out").status())));
  }
  int state = 0;
  waitpid(child, &state, 0);
  ASSERT_TRUE(WIFEXITED(state)) << "ended by signal " << WTERMSIG(state);
  EXPECT_EQ(WEXITSTATUS(state), static_cast<int>(ExitCode::kResources));
  EXPECT_FALSE(std::filesystem::exists(temp / "out"));
  EXPECT_TRUE(Forge(model, SmallTiles(Target::kHf), temp / "out").ok());
}

}  // namespace
}  // namespace twinforge
