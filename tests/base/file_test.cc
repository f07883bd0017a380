#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_replace.h"
#include "base/diagnostic.h"
#include "base/sha256.h"

namespace twinforge {
namespace {

namespace fs = std::filesystem;

class FileTest : public testing::Test {
 protected:
  FileTest() {
    std::string pattern = (fs::temp_directory_path() / "twinforge_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~FileTest() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(Path(name), std::ios::binary) << bytes;
  }
  std::string Text(const absl::Status& status) const {
    return status.ok() ? "ok" : absl::StrReplaceAll(Render(status), {{folder_, "DIR"}});
  }
  std::string OpenText(const std::string& name) const {
    return Text(ReadableFile::Open(Path(name)).status());
  }

  std::string folder_;
};

TEST_F(FileTest, ReadsWhereAsked) {
  Write("f", "0123456789");
  const auto file = ReadableFile::Open(Path("f"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->size(), 10);
  char out[4] = {};
  ASSERT_TRUE((*file)->ReadAt(6, 4, reinterpret_cast<std::byte*>(out)).ok());
  EXPECT_EQ(std::string(out, 4), "6789");
  EXPECT_TRUE((*file)->ReadAt(10, 0, nullptr).ok());
  EXPECT_EQ(Text((*file)->ReadAt(7, 4, reinterpret_cast<std::byte*>(out))),
            "error[TF1204]: DIR/f: bytes 7 to 11 were wanted, but the file ends at byte 10\n"
            "  hint: the file was cut short; fetch it again\n");
}

TEST_F(FileTest, RefusesWhatIsNoFile) {
  fs::create_directory(Path("folder"));
  ASSERT_EQ(::mkfifo(Path("fifo").c_str(), 0600), 0);
  fs::create_symlink("circle", Path("circle"));
  fs::create_symlink("fifo", Path("to_fifo"));
  EXPECT_EQ(OpenText("none"), "error[TF1202]: DIR/none: no such file\n");
  EXPECT_EQ(OpenText("folder"), "error[TF1203]: DIR/folder: is a folder, not a regular file\n");
  EXPECT_EQ(OpenText("fifo"), "error[TF1203]: DIR/fifo: is a FIFO, not a regular file\n");
  EXPECT_EQ(OpenText("to_fifo"), "error[TF1203]: DIR/to_fifo: is a FIFO, not a regular file\n");
  EXPECT_EQ(OpenText("circle"), "error[TF1202]: DIR/circle: symbolic links that lead in a circle\n");
  EXPECT_EQ(Text(ReadableFile::Open("/dev/null").status()),
            "error[TF1203]: /dev/null: is a device, not a regular file\n");
}

TEST_F(FileTest, NoticesAReplacement) {
  Write("f", "abc");
  const auto file = ReadableFile::Open(Path("f"));
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE((*file)->CheckUnchanged().ok());
  Write("g", "abc");
  fs::rename(Path("g"), Path("f"));
  EXPECT_EQ(Text((*file)->CheckUnchanged()),
            "error[TF1205]: DIR/f: was replaced by another file while it was being read\n"
            "  hint: wait until whatever writes it has finished, then run again\n");
}

TEST_F(FileTest, TextFilesHaveALimit) {
  Write("t", "hello");
  EXPECT_EQ(*ReadTextFile(Path("t")), "hello");
  EXPECT_EQ(*ReadTextFile(Path("t"), 5), "hello");
  EXPECT_EQ(Text(ReadTextFile(Path("t"), 4).status()),
            "error[TF1207]: DIR/t: has 5 bytes, and at most 4 are accepted here\n");
  fs::resize_file(Path("t"), uintmax_t{1} << 40);  // sparse: refused before anything is allocated
  EXPECT_EQ(Text(ReadTextFile(Path("t")).status()),
            "error[TF1207]: DIR/t: has 1099511627776 bytes, and at most 67108864 are accepted here\n");
}

// FIPS 180-2's own examples.
TEST(Sha256, OfKnownTexts) {
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 sha;
  for (int i = 0; i < 1000; ++i) sha.Add(std::string(1000, 'a').data(), 1000);
  EXPECT_EQ(sha.Finish(), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  sha.Add("abc", 3);  // begun anew
  EXPECT_EQ(sha.Finish(), Sha256Hex("abc"));
}

}  // namespace
}  // namespace twinforge
