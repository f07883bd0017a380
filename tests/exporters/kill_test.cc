// A run that is killed at any call to the system leaves the old state or the new one, and
// the next run ends with the same bytes as one that was never disturbed.
//
// A child process counts its calls through the file system's seam and ends itself, without any
// clean-up, before, within or after the k-th; for every k of a small forge.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/diagnostic.h"
#include "exporters/exporter.h"
#include "exporters/groups.h"
#include "tests/exporters/fixture.h"

namespace twinforge {
namespace {

enum class Moment { kBefore, kWithin, kAfter };

// What the child has done, seen by its parent.
struct Shared {
  std::atomic<int64_t> calls{0};
  std::atomic<int64_t> data_bytes{0};  // of large files, in writes that returned
};

class KillingFiles : public FileSystem {
 public:
  KillingFiles(Shared& shared, int64_t victim, Moment moment)
      : shared_(shared), victim_(victim), moment_(moment) {}

  int Open(const std::string& path, OpenMode mode) override {
    Before();
    int fd = FileSystem::Open(path, mode);
    if (mode != OpenMode::kFolder && path.find(".safetensors") != std::string::npos &&
        path.find("index") == std::string::npos) {
      data_.insert(fd);
    }
    return After(fd);
  }
  int64_t Write(int fd, const std::byte* data, int64_t count, int64_t offset) override {
    Before();
    if (Struck() && moment_ == Moment::kWithin) {
      FileSystem::Write(fd, data, count / 2, offset);
      _exit(9);
    }
    int64_t written = FileSystem::Write(fd, data, count, offset);
    if (data_.count(fd) > 0) shared_.data_bytes += written;
    return After(written);
  }
  int Close(int fd) override {
    data_.erase(fd);
    return FileSystem::Close(fd);
  }
  int Allocate(int fd, int64_t bytes) override {
    return Call([&] { return FileSystem::Allocate(fd, bytes); });
  }
  int Truncate(int fd, int64_t bytes) override {
    return Call([&] { return FileSystem::Truncate(fd, bytes); });
  }
  int Sync(int fd) override {
    return Call([&] { return FileSystem::Sync(fd); });
  }
  int Lock(int fd) override {
    return Call([&] { return FileSystem::Lock(fd); });
  }
  int MakeFolder(const std::string& path) override {
    return Call([&] { return FileSystem::MakeFolder(path); });
  }
  int Rename(const std::string& from, const std::string& to) override {
    return Call([&] { return FileSystem::Rename(from, to); });
  }
  int Remove(const std::string& path) override {
    return Call([&] { return FileSystem::Remove(path); });
  }

 private:
  bool Struck() const { return shared_.calls == victim_; }
  void Before() {
    ++shared_.calls;
    if (Struck() && moment_ == Moment::kBefore) _exit(9);
  }
  template <typename T>
  T After(T result) {
    if (Struck()) _exit(9);
    return result;
  }
  template <typename Fn>
  int Call(Fn fn) {
    Before();
    return After(fn());
  }

  Shared& shared_;
  int64_t victim_;
  Moment moment_;
  std::set<int> data_;
};

class Kill : public ::testing::TestWithParam<Moment> {};

// Runs the forge in a child. True if it was killed, false if it ended well.
bool KilledForge(const Model& model, ExportOptions options, const std::string& out, Shared& shared,
                 int64_t victim, Moment moment) {
  shared.calls = 0;
  shared.data_bytes = 0;
  pid_t child = fork();
  if (child == 0) {
    KillingFiles files(shared, victim, moment);
    options.seams.files = &files;
    auto plan = PlanExport(model, options);
    _exit(plan.ok() && Export(model, *plan, SomeProvenance(), options, out, nullptr).ok() ? 0 : 1);
  }
  int state = 0;
  waitpid(child, &state, 0);
  EXPECT_TRUE(WIFEXITED(state));
  EXPECT_NE(WEXITSTATUS(state), 1) << "the child failed on its own";
  return WEXITSTATUS(state) == 9;
}

TEST_P(Kill, AtEveryCallLeavesOldOrNewAndResumesToTheSameBytes) {
  Shared& shared =
      *new (mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared;
  Model model = Twin(Rewriting::kNative);
  ExportOptions options = SmallTiles(Target::kTwin);
  TempFolder undisturbed;
  auto whole = Forge(model, options, undisturbed / "out");
  ASSERT_TRUE(whole.ok()) << whole.status();
  const Tree expected = ReadTree(undisturbed / "out");

  const ExportPlan plan = *PlanExport(model, options);
  int64_t headers = 0;
  int64_t largest = 0;
  for (const Group& group : CutFiles(plan.files, plan.share, options.seams.tile_bytes).groups) {
    largest = std::max(largest, group.bytes);
    if (group.place == 0) headers += group.bytes;
  }

  int64_t victim = 1;
  for (;; ++victim) {
    SCOPED_TRACE(victim);
    TempFolder temp;
    if (!KilledForge(model, options, temp / "out", shared, victim, GetParam())) break;
    bool published = std::filesystem::exists(temp / "out");
    if (published) {
      Tree tree = ReadTree(temp / "out");
      tree.erase(".journal");
      ASSERT_TRUE(tree == expected) << "a name that stands is a whole twin";
      if (!std::filesystem::exists(temp / "out/.journal")) continue;
    }
    const int64_t before = shared.data_bytes;
    auto again = Forge(model, options, temp / "out");
    ASSERT_TRUE(again.ok()) << again.status();
    ASSERT_TRUE(ReadTree(temp / "out") == expected);
    ASSERT_EQ(List(temp.path()), "out");
    // At most the group that was being written, or had just been and was not yet noted, is done again;
    // and headers, which cost nothing to make.
    EXPECT_LE(again->bytes_written, whole->bytes_written - before + largest + headers);
  }
  EXPECT_GT(victim, 60) << "a forge of so few calls tests little";
}

// Where nothing is written between aligned tensors, zeros lie there after a resume too.
TEST_P(Kill, AnOnnxModelResumesToTheSameBytes) {
  Shared& shared =
      *new (mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared;
  Model model = Twin(Rewriting::kNative);
  ExportOptions options = SmallTiles(Target::kOnnx);
  TempFolder undisturbed;
  ASSERT_TRUE(Forge(model, options, undisturbed / "out").ok());
  const Tree expected = ReadTree(undisturbed / "out");
  int64_t victim = 3;
  for (;; victim += 11) {
    SCOPED_TRACE(victim);
    TempFolder temp;
    if (!KilledForge(model, options, temp / "out", shared, victim, GetParam())) break;
    ASSERT_TRUE(Forge(model, options, temp / "out").ok());
    ASSERT_TRUE(ReadTree(temp / "out") == expected);
  }
  EXPECT_GT(victim, 60) << "a forge of so few calls tests little";
}

// A journal says what was written; what became of it until the run is resumed, only the bytes say.
TEST(Resume, TrustsNoByteThatChangedMeanwhile) {
  Shared& shared =
      *new (mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared;
  Model model = Twin(Rewriting::kNative);
  ExportOptions options = SmallTiles(Target::kTwin);
  TempFolder undisturbed;
  ASSERT_TRUE(Forge(model, options, undisturbed / "out").ok());
  const Tree expected = ReadTree(undisturbed / "out");
  int64_t damaged = 0;
  for (int64_t victim = 1;; ++victim) {
    SCOPED_TRACE(victim);
    TempFolder temp;
    if (!KilledForge(model, options, temp / "out", shared, victim, Moment::kBefore)) break;
    if (std::filesystem::exists(temp / "out")) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(temp.path())) {
      if (entry.path().extension() != ".safetensors") continue;
      std::string bytes = ReadFile(entry.path());
      if (bytes.empty()) continue;
      bytes[bytes.size() / 2] ^= 0x55;
      WriteFile(entry.path(), bytes);
      ++damaged;
    }
    auto again = Forge(model, options, temp / "out");
    ASSERT_TRUE(again.ok()) << again.status();
    ASSERT_TRUE(ReadTree(temp / "out") == expected);
  }
  EXPECT_GT(damaged, 30);
}

// Change times that nobody keeps: a network's, a bucket's.
struct ForgetfulFiles : FileSystem {
  bool KeepsChangeTimes(const std::string&) override { return false; }
};

// Bytes in the later half of `file`; not its length, modification time or inode.
void ChangeUnseen(const std::string& file) {
  const auto written = std::filesystem::last_write_time(file);
  std::string bytes = ReadFile(file);
  for (size_t at = bytes.size() / 2; at < bytes.size(); at += 997) bytes[at] ^= 1;
  {
    std::fstream in_place(file, std::ios::in | std::ios::out | std::ios::binary);
    in_place << bytes;
  }
  std::filesystem::last_write_time(file, written);
}

// Bytes of the source change, its length, modification time and inode do not: the twin is that of the new
// bytes, and no byte of the old ones is left in it.
TEST(Resume, MixesNothingOfASourceThatChangedMeanwhile) {
  Shared& shared =
      *new (mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared;
  int64_t resumed = 0;
  for (int64_t victim = 1;; victim += 3) {
    SCOPED_TRACE(victim);
    TempFolder temp;
    CopyTinyLlama(temp / "in");
    const std::string file = temp / "in/model.safetensors";
    ExportOptions options = SmallTiles(Target::kTwin);
    if (!KilledForge(Twin(Rewriting::kNative, temp / "in"), options, temp / "out", shared, victim,
                     Moment::kBefore)) {
      break;
    }
    if (std::filesystem::exists(temp / "out")) continue;
    ChangeUnseen(file);
    ForgetfulFiles forgetful;
    if (victim % 2 == 0) options.seams.files = &forgetful;
    const Model changed = Twin(Rewriting::kNative, temp / "in");
    auto again = Forge(changed, options, temp / "out");
    ASSERT_TRUE(again.ok()) << again.status();
    resumed += again->bytes_reused > 0 ? 1 : 0;
    ASSERT_TRUE(Forge(changed, SmallTiles(Target::kTwin), temp / "anew").ok());
    ASSERT_TRUE(ReadTree(temp / "out") == ReadTree(temp / "anew"));
  }
  EXPECT_GT(resumed, 10) << "what did not change need not be written again";
}

// The same while one run reads: it reads again before it publishes, and gives up where that never ends.
TEST(Resume, ReadsAgainWhatChangedWhileItWasRead) {
  struct ChangingFiles : FileSystem {
    int Sync(int fd) override {
      if (left > 0 && --left >= 0) ChangeUnseen(file);
      return FileSystem::Sync(fd);
    }
    std::string file;
    int left = 0;
  };
  for (int changes : {1, 2, 1000}) {
    TempFolder temp;
    CopyTinyLlama(temp / "in");
    ChangingFiles files;
    files.file = temp / "in/model.safetensors";
    files.left = changes;
    ExportOptions options = SmallTiles(Target::kTwin);
    options.seams.files = &files;
    const Model model = Twin(Rewriting::kNative, temp / "in");
    auto result = Forge(model, options, temp / "out");
    if (changes == 1000) {
      EXPECT_EQ(DiagnosticOf(result.status()).value_or(Diagnostic()).code, 1205) << result.status();
      EXPECT_EQ(List(temp.path()), "in");
      continue;
    }
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_TRUE(Forge(model, SmallTiles(Target::kTwin), temp / "anew").ok());
    EXPECT_TRUE(ReadTree(temp / "out") == ReadTree(temp / "anew"));
    EXPECT_GT(result->bytes_reused, 0);
  }
}

// Where change times are not kept, what is written is compared with what is made anew, and stays.
TEST(Resume, ComparesWhereChangeTimesAreNotKept) {
  Shared& shared =
      *new (mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared;
  const Model model = Twin(Rewriting::kNative);
  ExportOptions options = SmallTiles(Target::kTwin);
  TempFolder temp;
  auto whole = Forge(model, options, temp / "whole");
  ASSERT_TRUE(whole.ok()) << whole.status();
  int64_t last = 1;  // the last call before the folder has its name
  for (; !std::filesystem::exists(temp / "probe"); ++last) {
    std::filesystem::remove_all((temp / "probe") + ".partial-" +
                                PlanExport(model, options)->digest.substr(0, 12));
    KilledForge(model, options, temp / "probe", shared, last, Moment::kAfter);
  }
  ASSERT_TRUE(KilledForge(model, options, temp / "out", shared, last - 2, Moment::kAfter));
  ASSERT_FALSE(std::filesystem::exists(temp / "out"));
  ForgetfulFiles forgetful;
  options.seams.files = &forgetful;
  auto again = Forge(model, options, temp / "out");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_GT(again->bytes_reused, whole->bytes_written * 9 / 10);
  EXPECT_TRUE(ReadTree(temp / "out") == ReadTree(temp / "whole"));
}

INSTANTIATE_TEST_SUITE_P(Moments, Kill, ::testing::Values(Moment::kBefore, Moment::kWithin, Moment::kAfter));

}  // namespace
}  // namespace twinforge
