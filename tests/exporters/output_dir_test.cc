#include "exporters/output_dir.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "base/diagnostic.h"
#include "tests/exporters/fixture.h"

namespace twinforge {
namespace {

OutputDir::Request RequestFor(const std::string& out, const std::string& stamp = "s1") {
  return {.out = out, .digest = "0123456789abcdef", .stamp = stamp, .changes = "c1", .bytes = 100};
}

std::unique_ptr<OutputDir> MustOpen(const OutputDir::Request& request) {
  auto dir = OutputDir::Open(SystemFiles(), request);
  EXPECT_TRUE(dir.ok()) << dir.status();
  return *std::move(dir);
}

int CodeOf(const absl::Status& status) { return DiagnosticOf(status).value_or(Diagnostic()).code; }

const std::byte* Bytes(const char* text) { return reinterpret_cast<const std::byte*>(text); }

// Leaves a folder with one noted range, one finished file and no lock.
void LeaveHalf(const std::string& out) {
  auto dir = MustOpen(RequestFor(out));
  int fd = *dir->StartFile("a b.bin", 10);
  ASSERT_TRUE(dir->WriteRange(fd, "a b.bin", 2, Bytes("hello"), 5).ok());
  ASSERT_TRUE(dir->NoteRange("a b.bin", 2, 5, 77).ok());
  int other = *dir->StartFile("done", 4);
  ASSERT_TRUE(dir->WriteRange(other, "done", 0, Bytes("done"), 4).ok());
  ASSERT_TRUE(dir->FinishFile(other, "done", {4, "cafe", {"beef", "f00d"}}).ok());
}

TEST(OutputDir, ResumesFromItsJournal) {
  TempFolder temp;
  LeaveHalf(temp / "out");
  auto dir = MustOpen(RequestFor(temp / "out"));
  const uint64_t* hash = dir->FindRange("a b.bin", 2, 5);
  ASSERT_NE(hash, nullptr);
  EXPECT_EQ(*hash, 77u);
  EXPECT_EQ(dir->FindRange("a b.bin", 2, 4), nullptr);
  const FinishedFile* done = dir->FindFinished("done");
  ASSERT_NE(done, nullptr);
  EXPECT_EQ(done->sha256, "cafe");
  EXPECT_EQ(done->parts, (std::vector<std::string>{"beef", "f00d"}));
  int fd = *dir->StartFile("a b.bin", 10);
  std::byte back[5];
  ASSERT_TRUE(dir->ReadBack(fd, 2, back, 5));
  EXPECT_EQ(memcmp(back, "hello", 5), 0);
  EXPECT_FALSE(dir->ReadBack(fd, 8, back, 5)) << "beyond the end";
}

// The same sizes and times, and a change that only the kernel noted, or would not have noted: kept, and
// doubted.
TEST(OutputDir, DoubtsTheJournalOfASourceThatMayHaveChanged) {
  for (const char* changes : {"c1", "c2", ""}) {
    TempFolder temp;
    LeaveHalf(temp / "out");
    OutputDir::Request request = RequestFor(temp / "out");
    request.changes = changes;
    for (int run = 0; run < 2; ++run) {  // one that follows it doubts it too
      auto dir = MustOpen(request);
      EXPECT_EQ(dir->doubted(), request.changes != "c1") << changes;
      EXPECT_TRUE(dir->Tells("a b.bin", 2, 5));
      EXPECT_TRUE(dir->Tells("done", 0, 2));
      EXPECT_FALSE(dir->Tells("a b.bin", 2, 4));
      EXPECT_FALSE(dir->Tells("none", 0, 4));
    }
  }
}

// Killed between rename and the journal's removal: the folder is a twin of what the source was then.
TEST(OutputDir, TakesAFinishedFolderOnlyForTheSameBytes) {
  for (const char* changes : {"c1", "c2", ""}) {
    TempFolder temp;
    LeaveHalf(temp / "out");
    std::filesystem::rename(temp / "out.partial-0123456789ab", temp / "out");
    OutputDir::Request request = RequestFor(temp / "out");
    request.changes = changes;
    auto dir = OutputDir::Open(SystemFiles(), request);
    if (request.changes == "c1") {
      ASSERT_TRUE(dir.ok()) << dir.status();
      EXPECT_TRUE((*dir)->published());
    } else {
      EXPECT_EQ(CodeOf(dir.status()), 1608) << changes;
    }
  }
}

// Ranges of any place and length, through the cache and past it, give the bytes that were asked for.
TEST(OutputDir, WritesRangesPastTheCacheAndThroughIt) {
  constexpr int64_t kSize = 100'000;
  for (int64_t direct : {int64_t{1}, int64_t{3} * 4096, kSize * 2}) {
    TempFolder temp;
    OutputDir::Request request = RequestFor(temp / "out");
    request.direct = direct;
    auto dir = MustOpen(request);
    int fd = *dir->StartFile("f", kSize);
    std::string expected;
    for (int64_t at = 0, length = 1; at < kSize; at += length, length = (length * 7 + 1001) % 23'000 + 1) {
      length = std::min(length, kSize - at);
      std::string piece(length, static_cast<char>('a' + length % 26));
      auto* memory = static_cast<std::byte*>(aligned_alloc(4096, (length / 4096 + 2) * 4096));
      std::byte* data =
          memory + (length % 2 == 0 ? at % 4096 : 0);  // half of them do not lie as the file does
      memcpy(data, piece.data(), length);
      ASSERT_TRUE(dir->WriteRange(fd, "f", at, data, length).ok());
      free(memory);
      expected += piece;
    }
    ASSERT_TRUE(dir->FinishFile(fd, "f", {.bytes = kSize, .sha256 = "x"}).ok());
    EXPECT_TRUE(ReadFile(dir->partial() + "/f") == expected) << direct;
  }
}

TEST(OutputDir, ForgetsWhatAnotherSourceWrote) {
  TempFolder temp;
  LeaveHalf(temp / "out");
  auto dir = MustOpen(RequestFor(temp / "out", "s2"));
  EXPECT_EQ(dir->FindRange("a b.bin", 2, 5), nullptr);
  EXPECT_EQ(dir->FindFinished("done"), nullptr);
}

// Cut at any byte, or with any byte changed, a journal says nothing false.
TEST(OutputDir, BelievesOnlyWholeLines) {
  TempFolder temp;
  LeaveHalf(temp / "out");
  std::string path = temp / "out.partial-0123456789ab/.journal";
  const std::string journal = ReadFile(path);
  for (size_t cut = 0; cut <= journal.size(); ++cut) {
    WriteFile(path, journal.substr(0, cut));
    auto dir = MustOpen(RequestFor(temp / "out"));
    const uint64_t* hash = dir->FindRange("a b.bin", 2, 5);
    if (hash != nullptr) {
      EXPECT_EQ(*hash, 77u);
    }
    const FinishedFile* done = dir->FindFinished("done");
    if (done != nullptr) {
      EXPECT_EQ(done->sha256, "cafe");
    }
    if (done != nullptr) {
      EXPECT_EQ(cut, journal.size());
    }
  }
  for (size_t at = 0; at < journal.size(); ++at) {
    std::string changed = journal;
    changed[at] ^= 4;
    WriteFile(path, changed);
    auto dir = MustOpen(RequestFor(temp / "out"));
    EXPECT_FALSE(dir->FindRange("a b.bin", 2, 5) != nullptr && dir->FindFinished("done") != nullptr) << at;
  }
}

TEST(OutputDir, DoesNotBelieveInAFileThatIsGoneOrShort) {
  TempFolder temp;
  LeaveHalf(temp / "out");
  WriteFile(temp / "out.partial-0123456789ab/done", "don");
  EXPECT_EQ(MustOpen(RequestFor(temp / "out"))->FindFinished("done"), nullptr);
}

TEST(OutputDir, IsLockedWhileItIsOpen) {
  TempFolder temp;
  auto dir = MustOpen(RequestFor(temp / "out"));
  auto second = OutputDir::Open(SystemFiles(), RequestFor(temp / "out"));
  EXPECT_EQ(CodeOf(second.status()), 1609);
  EXPECT_EQ(ExitCodeOf(second.status()), ExitCode::kTransient);
  dir.reset();
  EXPECT_TRUE(OutputDir::Open(SystemFiles(), RequestFor(temp / "out")).ok());
}

TEST(OutputDir, RefusesANameThatExists) {
  TempFolder temp;
  WriteFile(temp / "out", "");
  auto dir = OutputDir::Open(SystemFiles(), RequestFor(temp / "out"));
  EXPECT_EQ(CodeOf(dir.status()), 1608);
  EXPECT_EQ(ExitCodeOf(dir.status()), ExitCode::kUsage);
  EXPECT_EQ(List(temp.path()), "out");
}

TEST(OutputDir, RefusesAPlaceThatIsNone) {
  auto dir = OutputDir::Open(SystemFiles(), RequestFor("/no/such/folder/out"));
  EXPECT_EQ(CodeOf(dir.status()), 1607);
}

TEST(OutputDir, SaysBeforehandThatTheDiskIsTooSmall) {
  TempFolder temp;
  OutputDir::Request request = RequestFor(temp / "out");
  request.bytes = int64_t{1} << 60;
  auto dir = OutputDir::Open(SystemFiles(), request);
  EXPECT_EQ(CodeOf(dir.status()), 1605);
  EXPECT_EQ(ExitCodeOf(dir.status()), ExitCode::kResources);
  EXPECT_EQ(List(temp.path()), "") << "nothing was written, so there is nothing to go on with";
  LeaveHalf(temp / "out");
  EXPECT_EQ(CodeOf(OutputDir::Open(SystemFiles(), request).status()), 1605);
  EXPECT_NE(MustOpen(RequestFor(temp / "out"))->FindFinished("done"), nullptr) << "what was written stays";
}

TEST(OutputDir, IsGivenUpWhereNoLaterRunCanGoOn) {
  TempFolder temp;
  for (const auto& [code, stays] : {std::pair(1605, true),
                                    {1606, true},
                                    {1607, true},
                                    {1205, false},
                                    {1310, false},
                                    {1202, false},
                                    {1603, false}}) {
    LeaveHalf(temp / "out");
    auto dir = MustOpen(RequestFor(temp / "out"));
    ASSERT_TRUE(dir->WriteSmall("sub/small.txt", "hello").ok());
    const absl::Status told = dir->Abandon(Error(code, "", "test", "run the same command again"));
    const bool valid = absl::StrContains(DiagnosticOf(told)->hint, "what is written stays valid");
    EXPECT_EQ(valid, code == 1605 || code == 1606) << "only where something is left to go on with";
    EXPECT_EQ(List(temp.path()), stays ? "out.partial-0123456789ab" : "") << code;
  }
}

TEST(OutputDir, LeavesTheFolderOfAnotherRunAlone) {
  TempFolder temp;
  auto dir = MustOpen(RequestFor(temp / "out"));
  EXPECT_EQ(CodeOf(OutputDir::Open(SystemFiles(), RequestFor(temp / "out")).status()), 1609);
  EXPECT_EQ(List(temp.path()), "out.partial-0123456789ab");
}

TEST(OutputDir, PublishesWithoutAJournal) {
  TempFolder temp;
  auto dir = MustOpen(RequestFor((temp / "out") + "/"));
  ASSERT_TRUE(dir->WriteSmall("sub/small.txt", "hello").ok());
  ASSERT_TRUE(dir->Publish().ok());
  EXPECT_EQ(List(temp.path()), "out");
  EXPECT_EQ(ReadTree(temp / "out"), (Tree{{"sub/small.txt", "hello"}}));
}

}  // namespace
}  // namespace twinforge
