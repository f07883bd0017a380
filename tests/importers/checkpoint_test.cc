// Folders: which files are a checkpoint, and how index, shards and links can disagree.
#include "importers/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "tests/importers/checkpoint_files.h"
#include "weights/build.h"

namespace twinforge {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

constexpr char kIndex[] = "model.safetensors.index.json";
constexpr char kShard1[] = "model-00001-of-00002.safetensors";
constexpr char kShard2[] = "model-00002-of-00002.safetensors";

std::string One(const std::string& name) {
  return File("{" + Bytes(name, 0, 4) + "}", std::string("\1\2\3\4"));
}

// {"metadata": {"total_size": 8}, "weight_map": {"a": shard 1, "b": shard 2}}
std::string Index(const std::string& a, const std::string& b) {
  return "{\"metadata\": {\"total_size\": 8},\n \"weight_map\": {\"a\": \"" + a + "\", \"b\": \"" + b +
         "\"}}";
}

// A sound checkpoint of two shards, one tensor each.
void WriteSharded(const TempFolder& folder) {
  folder.Write(kShard1, One("a"));
  folder.Write(kShard2, One("b"));
  folder.Write(kIndex, Index(kShard1, kShard2));
}

struct Row {
  const char* name;
  std::function<void(const TempFolder&)> spoil;  // what is done to the sound checkpoint
  std::string expected;
};

std::vector<Row> Names() {
  const auto index = [](const std::string& a) {
    return [a](const TempFolder& folder) { folder.Write(kIndex, Index(a, kShard2)); };
  };
  const std::string place = std::string("error[TF1303]: DIR/") + kIndex + ": tensor \"a\": its shard ";
  const std::string hint = "\n  hint: shards must lie beside their index and be named by file name alone\n";
  return {
      {"AbsolutePath", index("/etc/passwd"), place + "\"/etc/passwd\" is an absolute path" + hint},
      {"DotDot", index("../model.safetensors"),
       place + "\"../model.safetensors\" climbs out of the folder" + hint},
      {"DotDotInside", index("x/../../m.safetensors"),
       place + "\"x/../../m.safetensors\" climbs out of the folder" + hint},
      {"OnlyDotDot", index(".."), place + "\"..\" climbs out of the folder" + hint},
      {"Backslash", index("x\\\\m.safetensors"), place + "\"x\\\\m.safetensors\" has a backslash" + hint},
      {"Subdirectory", index("sub/m.safetensors"),
       place + "\"sub/m.safetensors\" lies in another folder" + hint},
      {"NotSafetensors", index("model.bin"),
       std::string("error[TF1302]: DIR/") + kIndex +
           ": tensor \"a\": its shard \"model.bin\" is not the name of a "
           ".safetensors file\n"},
      {"ZeroInName", index("a\\u0000.safetensors"),
       std::string("error[TF1302]: DIR/") + kIndex +
           ": tensor \"a\": its shard \"a\\u0000.safetensors\" is not the name "
           "of a .safetensors file\n"},
  };
}

std::vector<Row> Disagreements() {
  const std::string at_index = std::string("DIR/") + kIndex;
  const std::string absent = std::string("names the file \"") + kShard2 +
                             "\", which is not in the folder\n"
                             "  hint: fetch the missing file\n";
  return {
      {"TensorInTwoShards",
       [](const TempFolder& f) {
         f.Write(kShard2, File("{" + Bytes("a", 0, 4) + "," + Bytes("b", 4, 8) + "}", 8));
       },
       std::string("error[TF1306]: DIR: tensor \"a\" is in both ") + kShard1 + " and " + kShard2 + "\n"},
      {"TensorMissingFromShard", [](const TempFolder& f) { f.Write(kShard2, File("{}", 0)); },
       "error[TF1304]: " + at_index + ": says that " + kShard2 + " has tensor \"b\", and no shard has it\n"},
      {"TensorInTheOtherShard", [](const TempFolder& f) { f.Write(kIndex, Index(kShard2, kShard1)); },
       "error[TF1304]: " + at_index + ": says that " + kShard2 + " has tensor \"a\", but " + kShard1 +
           " has it\n"},
      {"TensorNotInIndex",
       [](const TempFolder& f) {
         f.Write(kShard2, File("{" + Bytes("b", 0, 4) + "," + Bytes("c", 4, 8) + "}", 8));
       },
       "error[TF1305]: " + at_index + ": does not name tensor \"c\", which " + kShard2 + " has\n"},
      {"ShardAbsent", [](const TempFolder& f) { fs::remove(f / kShard2); },
       "error[TF1307]: " + at_index + ": " + absent},
      {"ShardCutShort",
       [](const TempFolder& f) { fs::resize_file(f / kShard2, fs::file_size(f / kShard2) - 1); },
       std::string("error[TF1204]: DIR/") + kShard2 +
           ": the tensors take 4 bytes, the file has 3 after its header\n"
           "  hint: the file was cut short; fetch it again\n"},
      {"ShardIsAPointer",
       [](const TempFolder& f) { f.Write(kShard2, "version https://git-lfs.github.com/spec/v1\n"); },
       std::string("error[TF1209]: DIR/") + kShard2 +
           ": is a Git LFS pointer, not the file itself\n"
           "  hint: run `git lfs pull` in the checkpoint's folder\n"},
      {"ShardIsAFolder",
       [](const TempFolder& f) {
         fs::remove(f / kShard2);
         fs::create_directory(f / kShard2);
       },
       std::string("error[TF1203]: DIR/") + kShard2 + ": is a folder, not a regular file\n"},
      {"NoWeightMap", [](const TempFolder& f) { f.Write(kIndex, "{\"metadata\": {}}"); },
       "error[TF1302]: " + at_index + ": the index has no weight_map\n"},
      {"EmptyWeightMap", [](const TempFolder& f) { f.Write(kIndex, "{\"weight_map\": {}}"); },
       "error[TF1302]: " + at_index + ": weight_map is empty\n"},
      {"WeightMapArray", [](const TempFolder& f) { f.Write(kIndex, "{\"weight_map\": []}"); },
       "error[TF1302]: " + at_index + ": weight_map must be an object, found an array\n"},
      {"IndexArray", [](const TempFolder& f) { f.Write(kIndex, "[]"); },
       "error[TF1302]: " + at_index + ": the index must be an object, found an array\n"},
      {"ShardIsNumber", [](const TempFolder& f) { f.Write(kIndex, "{\"weight_map\": {\"a\": 1}}"); },
       "error[TF1302]: " + at_index + ": the shard of \"a\" must be a string, found a number\n"},
      {"IndexedTwice",
       [](const TempFolder& f) {
         f.Write(kIndex, "{\"weight_map\":\n  {\"a\": \"m.safetensors\", \"\\u0061\": \"m.safetensors\"}}");
       },
       "error[TF1206]: " + at_index + ":2:26: the key \"a\" appears twice in one object\n"},
      {"IndexCutShort", [](const TempFolder& f) { f.Write(kIndex, "{\"weight_map\": {\n"); },
       "error[TF1206]: " + at_index + ":2:1: a key in quotes should stand here\n"},
      {"IndexIsEmpty", [](const TempFolder& f) { f.Write(kIndex, ""); },
       "error[TF1206]: " + at_index + ":1:1: the text ends where a value should stand\n"},
  };
}

std::vector<Row> Links() {
  const std::string shard = std::string("DIR/") + kShard2;
  const auto replace = [](const std::string& target) {
    return [target](const TempFolder& f) {
      fs::remove(f / kShard2);
      fs::create_symlink(target, f / kShard2);
    };
  };
  return {
      {"LinkOut", replace("/etc/hostname"),
       "error[TF1308]: " + shard + ": is a symbolic link to /etc/hostname, outside the checkpoint\n"},
      {"LinkInACircle", replace(kShard2),
       "error[TF1308]: " + shard + ": symbolic links that lead in a circle\n"},
      {"LinkToNothing", replace("gone"),
       "error[TF1307]: " + shard +
           ": is a symbolic link to nothing: No such file or directory\n"
           "  hint: fetch the missing file\n"},
      {"IndexLinksOut",
       [](const TempFolder& f) {
         fs::remove(f / kIndex);
         fs::create_symlink("/etc/passwd", f / kIndex);
       },
       std::string("error[TF1308]: DIR/") + kIndex +
           ": is a symbolic link to /etc/passwd, outside the checkpoint\n"},
  };
}

std::vector<Row> Choices() {
  return {
      {"BothKinds", [](const TempFolder& f) { f.Write("model.safetensors", One("a")); },
       std::string("error[TF1309]: DIR: has both model.safetensors and ") + kIndex +
           ", which does not name it\n"
           "  hint: name the one that is meant\n"},
      {"ShardsWithoutIndex", [](const TempFolder& f) { fs::remove(f / kIndex); },
       std::string("error[TF1301]: DIR: the folder has 2 shards and no ") + kIndex +
           "\n  hint: fetch the index too\n"},
      {"Nothing",
       [](const TempFolder& f) {
         for (const char* name : {kIndex, kShard1, kShard2}) fs::remove(f / name);
       },
       "error[TF1301]: DIR: the folder has no .safetensors file\n  hint: name the folder that has the "
       "weights\n"},
      {"SeveralFiles",
       [](const TempFolder& f) {
         for (const char* name : {kIndex, kShard1, kShard2}) fs::remove(f / name);
         f.Write("x.safetensors", One("a"));
         f.Write("y.safetensors", One("a"));
       },
       "error[TF1309]: DIR: the folder has several: x.safetensors, y.safetensors\n"
       "  hint: name the one that is meant\n"},
  };
}

class Spoiled : public testing::TestWithParam<Row> {};

TEST_P(Spoiled, IsRefusedWithExactText) {
  const TempFolder folder;
  WriteSharded(folder);
  ASSERT_EQ(folder.Text(Checkpoint::Open(folder.path()).status()), "ok");
  GetParam().spoil(folder);
  EXPECT_EQ(folder.Text(Checkpoint::Open(folder.path()).status()), GetParam().expected);
}

std::string RowName(const testing::TestParamInfo<Row>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Names, Spoiled, testing::ValuesIn(Names()), RowName);
INSTANTIATE_TEST_SUITE_P(Disagreements, Spoiled, testing::ValuesIn(Disagreements()), RowName);
INSTANTIATE_TEST_SUITE_P(Links, Spoiled, testing::ValuesIn(Links()), RowName);
INSTANTIATE_TEST_SUITE_P(Choices, Spoiled, testing::ValuesIn(Choices()), RowName);

TEST(Checkpoint, ShardsAreOneListByName) {
  const TempFolder folder;
  WriteSharded(folder);
  for (const std::string& path : {folder.path(), folder.path() + "/", folder / kIndex}) {
    const auto checkpoint = Checkpoint::Open(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_EQ((*checkpoint)->root(), folder.path());
    ASSERT_EQ((*checkpoint)->tensors().size(), 2u);
    EXPECT_EQ((*checkpoint)->tensors()[1].name, "b");
    EXPECT_EQ((*checkpoint)->files()[(*checkpoint)->tensors()[1].file].name, kShard2);
    EXPECT_EQ((*checkpoint)->Find("b"), &(*checkpoint)->tensors()[1]);
    EXPECT_EQ((*checkpoint)->Find("c"), nullptr);
    EXPECT_EQ((*checkpoint)->total_bytes(), 8);
    EXPECT_TRUE((*checkpoint)->warnings().empty());
    const StoredFile& file = (*checkpoint)->files()[0];
    EXPECT_EQ(file.header_sha256, Sha256Hex(One("a").substr(0, file.header_bytes)));
  }
}

// A warning is for what savers do wrong and no reader is harmed by.
TEST(Checkpoint, WarnsOfTotalSizeAndStrays) {
  const TempFolder folder;
  WriteSharded(folder);
  const auto warnings = [&] {
    const auto checkpoint = Checkpoint::Open(folder.path());
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    std::vector<std::string> texts;
    if (!checkpoint.ok()) return texts;
    for (const std::string& text : (*checkpoint)->warnings()) {
      texts.push_back(absl::StrReplaceAll(text, {{folder.path(), "DIR"}}));
    }
    return texts;
  };
  const std::string map =
      std::string("\"weight_map\": {\"a\": \"") + kShard1 + "\", \"b\": \"" + kShard2 + "\"}}";
  const std::string at_index = std::string("DIR/") + kIndex;
  folder.Write(kIndex, "{\"metadata\": {\"total_size\": 9}, " + map);
  EXPECT_THAT(warnings(), ElementsAre(at_index + ": metadata.total_size is 9, and the tensors take 8 bytes"));
  folder.Write(kIndex, "{\"metadata\": {}, " + map);
  EXPECT_THAT(warnings(), ElementsAre(at_index + ": has no metadata.total_size"));
  folder.Write(kIndex, "{\"metadata\": null, \"other\": [1, {\"x\": NaN}], " + map);
  EXPECT_THAT(warnings(), ElementsAre(at_index + ": has no metadata.total_size"));
  folder.Write(kIndex, "{\"metadata\": {\"total_size\": 8.0}, " + map);  // as older savers wrote it
  EXPECT_THAT(warnings(), ElementsAre());
  folder.Write("model-00003-of-00003.safetensors", One("c"));
  folder.Write("consolidated.safetensors", One("c"));  // another layout of the same model: not ours to read
  EXPECT_THAT(warnings(), ElementsAre(std::string("DIR/model-00003-of-00003.safetensors: is not in ") +
                                      kIndex + ", so it is not read"));
}

// snapshots/REVISION/x -> ../../blobs/HASH, as the Hub's client lays its cache out.
TEST(Checkpoint, FollowsTheCacheOfTheHub) {
  const TempFolder folder;
  const std::string blobs = "models--org--name/blobs/", snapshot = "models--org--name/snapshots/0123abcd/";
  folder.Write(blobs + "aa", One("a"));
  folder.Write(blobs + "bb", One("b"));
  folder.Write(blobs + "ii", Index(kShard1, kShard2));
  fs::create_directories(folder / snapshot);
  fs::create_symlink("../../blobs/aa", folder / (snapshot + kShard1));
  fs::create_symlink("../../blobs/bb", folder / (snapshot + kShard2));
  fs::create_symlink("../../blobs/ii", folder / (snapshot + kIndex));
  EXPECT_EQ(folder.Text(Checkpoint::Open(folder / snapshot).status()), "ok");
  EXPECT_EQ(folder.Text(Checkpoint::Open(folder / (snapshot + kIndex)).status()), "ok");
  EXPECT_EQ(folder.Text(Checkpoint::Open(folder / (snapshot + kShard1)).status()), "ok");
  fs::create_directory_symlink(folder / snapshot, folder / "link");
  EXPECT_EQ(folder.Text(Checkpoint::Open(folder / "link").status()), "ok");

  // The blobs of another repository are not ours.
  folder.Write("models--org--other/blobs/bb", One("b"));
  fs::remove(folder / (snapshot + kShard2));
  fs::create_symlink("../../../models--org--other/blobs/bb", folder / (snapshot + kShard2));
  EXPECT_EQ(
      folder.Text(Checkpoint::Open(folder / snapshot).status()),
      absl::StrCat("error[TF1308]: DIR/", snapshot, kShard2,
                   ": is a symbolic link to DIR/models--org--other/blobs/bb, outside the checkpoint\n"));
}

TEST(Checkpoint, FollowsLinksInsideTheFolder) {
  const TempFolder folder;
  WriteSharded(folder);
  fs::rename(folder / kShard2, folder / "kept");
  fs::create_symlink("kept", folder / kShard2);
  EXPECT_EQ(folder.Text(Checkpoint::Open(folder.path()).status()), "ok");
}

TEST(Checkpoint, ASingleFileOfAnyName) {
  const TempFolder folder;
  folder.Write("adapter_model.safetensors", One("a"));
  EXPECT_EQ(folder.Text(Checkpoint::Open(folder.path()).status()), "ok");
  folder.Write("model.safetensors", One("b"));  // preferred
  const auto checkpoint = Checkpoint::Open(folder.path());
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_NE((*checkpoint)->Find("b"), nullptr);
}

TEST(Checkpoint, ReadsAnyRangeOfElements) {
  const TempFolder folder;
  folder.Write("model.safetensors",
               File("{\"h\":{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[0,8]},"
                    "\"four\":{\"dtype\":\"F4\",\"shape\":[6],\"data_offsets\":[8,11]},"
                    "\"six\":{\"dtype\":\"F6_E2M3\",\"shape\":[8],\"data_offsets\":[11,17]}}",
                    std::string("\1\2\3\4\5\6\7\x8\x21\x43\x65", 11) +
                        std::string("\x41\x20\x0c\x45\x61\x1c", 6)));  // codes 1 1 2 3, 5 5 6 7
  const auto checkpoint = Checkpoint::Open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto read = [&](const WeightPtr& source, int64_t first, int64_t count) {
    std::vector<uint8_t> out(static_cast<size_t>(count * ElementBytes(source->dtype())));
    const absl::Status status =
        (*checkpoint)->ReadElements(*source, first, count, reinterpret_cast<std::byte*>(out.data()));
    EXPECT_TRUE(status.ok()) << status;
    return out;
  };
  EXPECT_THAT(read(Source("h", DType::kF16, {2, 2}), 1, 2), ElementsAre(3, 4, 5, 6));
  EXPECT_THAT(read(Source("h", DType::kF16, {2, 2}), 4, 0), ElementsAre());
  const std::vector<uint8_t> four = {1, 2, 3, 4, 5, 6}, six = {1, 1, 2, 3, 5, 5, 6, 7};
  for (size_t first = 0; first <= 6; ++first) {
    for (size_t end = first; end <= 6; ++end) {
      EXPECT_EQ(read(Source("four", DType::kF4, {6}), first, end - first),
                std::vector<uint8_t>(four.begin() + first, four.begin() + end));
    }
  }
  for (size_t first = 0; first <= 8; ++first) {
    for (size_t end = first; end <= 8; ++end) {
      EXPECT_EQ(read(Source("six", DType::kF6E2M3, {8}), first, end - first),
                std::vector<uint8_t>(six.begin() + first, six.begin() + end));
    }
  }
}

// Longer than the piece in which narrow types are unpacked.
TEST(Checkpoint, ReadsNarrowTypesInPieces) {
  const int64_t count = 50000;
  std::string data;
  for (int64_t i = 0; i < count / 2; ++i) data.push_back(static_cast<char>(i * 7));
  const TempFolder folder;
  folder.Write("model.safetensors",
               File("{\"a\":{\"dtype\":\"F4\",\"shape\":[50000],\"data_offsets\":[0,25000]}}", data));
  const auto checkpoint = Checkpoint::Open(folder.path());
  ASSERT_TRUE(checkpoint.ok());
  std::vector<uint8_t> out(count - 3);
  const WeightPtr source = Source("a", DType::kF4, {count});
  ASSERT_TRUE(
      (*checkpoint)->ReadElements(*source, 1, count - 3, reinterpret_cast<std::byte*>(out.data())).ok());
  for (int64_t i = 1; i < count - 2; ++i) {
    const uint8_t byte = static_cast<uint8_t>(data[i / 2]);
    ASSERT_EQ(out[i - 1], i % 2 == 0 ? byte & 15 : byte >> 4) << i;
  }
}

TEST(Checkpoint, RefusesAnotherTensorThanPlanned) {
  const TempFolder folder;
  WriteSharded(folder);
  const auto checkpoint = Checkpoint::Open(folder.path());
  ASSERT_TRUE(checkpoint.ok());
  std::byte out[16];
  const auto text = [&](const WeightPtr& source) {
    return folder.Text((*checkpoint)->ReadElements(*source, 0, 1, out));
  };
  EXPECT_EQ(text(Source("none", DType::kU8, {4})), "error[TF1310]: DIR: has no tensor \"none\"\n");
  EXPECT_EQ(text(Source("a", DType::kU8, {5})),
            std::string("error[TF1310]: ") + kShard1 + ": tensor \"a\": is u8[4], planned as u8[5]\n");
}

TEST(Checkpoint, NoticesWhatHappensAfterOpening) {
  using Change = std::function<void(const TempFolder&)>;
  const std::vector<std::pair<Change, std::string>> rows = {
      {[](const TempFolder& f) { fs::resize_file(f / kShard2, 3); },
       "changed its size while it was being read\n"
       "  hint: wait until whatever writes it has finished, then run again\n"},
      {[](const TempFolder& f) { f.Write("new", One("b")), fs::rename(f / "new", f / kShard2); },
       "was replaced by another file while it was being read\n"
       "  hint: wait until whatever writes it has finished, then run again\n"},
      {[](const TempFolder& f) {
         fs::last_write_time(f / kShard2, fs::last_write_time(f / kShard2) + std::chrono::seconds(1));
       },
       "was written to while it was being read\n"
       "  hint: wait until whatever writes it has finished, then run again\n"},
      {[](const TempFolder& f) { fs::remove(f / kShard2); },
       "was there when opened, and now: No such file or directory\n"},
  };
  for (const auto& [change, expected] : rows) {
    const TempFolder folder;
    WriteSharded(folder);
    const auto checkpoint = Checkpoint::Open(folder.path());
    ASSERT_TRUE(checkpoint.ok());
    EXPECT_TRUE((*checkpoint)->CheckUnchanged().ok());
    change(folder);
    EXPECT_EQ(folder.Text((*checkpoint)->CheckUnchanged()),
              std::string("error[TF1205]: DIR/") + kShard2 + ": " + expected);
  }
}

TEST(Checkpoint, AReadPastACutEndFailsAndDoesNotKill) {
  const TempFolder folder;
  WriteSharded(folder);
  const auto checkpoint = Checkpoint::Open(folder.path());
  ASSERT_TRUE(checkpoint.ok());
  const int64_t size = static_cast<int64_t>(fs::file_size(folder / kShard2));
  fs::resize_file(folder / kShard2, size - 2);
  std::byte out[4];
  EXPECT_EQ(folder.Text((*checkpoint)->ReadElements(*Source("b", DType::kU8, {4}), 0, 4, out)),
            absl::StrCat("error[TF1204]: DIR/", kShard2, ": bytes ", size - 4, " to ", size,
                         " were wanted, but the file ends at byte ", size - 2,
                         "\n  hint: the file was cut short; fetch it again\n"));
}

}  // namespace
}  // namespace twinforge
