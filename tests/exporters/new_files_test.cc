// Files said as stretches: they hold what was said, holes stay holes, and whatever call fails, nothing stands
// under the final name unless it is whole.
#include "exporters/new_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "onnx/onnx-ml.pb.h"
#include "onnx/rewrite.h"
#include "weights/build.h"

namespace twinforge {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kMiB = int64_t{1} << 20;

std::string BytesIn(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

class NewFilesTest : public ::testing::Test {
 protected:
  NewFilesTest() {
    std::string pattern = (fs::temp_directory_path() / "new_files_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    // 24 MiB of holes, bytes at 8 MiB and in the last place.
    const std::string source = folder_ / "source";
    {
      std::ofstream file(source, std::ios::binary);
      file.seekp(8 * kMiB) << std::string(10000, 'a');
      file.seekp(24 * kMiB - 1) << 'z';
    }
    source_ = *ReadableFile::Open(source);
    ::onnx::TensorProto tensor;
    tensor.set_data_type(::onnx::TensorProto::FLOAT);
    tensor.add_dims(3), tensor.add_dims(2);
    for (const float x : {1.f, 2.f, 3.f, 4.f, 5.f, 6.f}) tensor.add_float_data(x);
    program_ =
        Cast(Transpose(*reader_.Add("w", *PackedTensor::Of(tensor, none_, "w"), "w"), {1, 0}), DType::kBF16);
  }
  ~NewFilesTest() override { fs::remove_all(folder_); }

  std::vector<NewFile> Plan() const {
    Stretch text, copy, made;
    text.text = std::make_shared<const std::string>("..text");
    text.from = 2, text.length = 4;
    copy.offset = 4096, copy.file = source_.get(), copy.from = 4 * kMiB, copy.length = 20 * kMiB;
    made.offset = 30 * kMiB, made.program = program_, made.name = "w", made.length = 12;
    return {{"m", 4, {text}}, {"data/inner/d", 31 * kMiB, {text, copy, made}}};
  }

  std::string Expected() const {
    std::string bytes(static_cast<size_t>(31 * kMiB), '\0');
    bytes.replace(0, 4, "text");
    bytes.replace(static_cast<size_t>(4096 + 4 * kMiB), 10000, std::string(10000, 'a'));
    bytes[static_cast<size_t>(4096 + 20 * kMiB - 1)] = 'z';
    const uint16_t made[] = {0x3f80, 0x4040, 0x40a0, 0x4000, 0x4080, 0x40c0};  // 1 3 5 2 4 6
    std::memcpy(bytes.data() + 30 * kMiB, made, sizeof(made));
    return bytes;
  }

  fs::path folder_;
  std::unique_ptr<ReadableFile> source_;
  ExternalFiles none_;
  OnnxTensorReader reader_;
  WeightPtr program_;
};

TEST_F(NewFilesTest, HoldWhatWasSaidAndLeaveHolesOut) {
  const std::string out = folder_ / "out";
  const auto written = WriteNewFiles(SystemFiles(), Plan(), &reader_, out);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(BytesIn(folder_ / "out/m"), "text");
  EXPECT_TRUE(BytesIn(folder_ / "out/data/inner/d") == Expected());
  EXPECT_EQ(written->made, 12);
  EXPECT_EQ(written->copied + written->holes, 20 * kMiB);
  struct stat info;
  ASSERT_EQ(stat((out + "/data/inner/d").c_str(), &info), 0);
  EXPECT_LT(info.st_blocks * 512, kMiB);
  EXPECT_EQ(DiagnosticOf(WriteNewFiles(SystemFiles(), Plan(), &reader_, out).status())->code, 1608);
}

// The `victim`-th call returns -error; copies and writes are short.
class FaultyFiles : public FileSystem {
 public:
  FaultyFiles(int64_t victim, int error) : victim_(victim), error_(error) {}
  bool struck() const { return calls_ >= victim_; }

  int Open(const std::string& path, OpenMode mode) override {
    return Fails() ? -error_ : FileSystem::Open(path, mode);
  }
  int64_t Write(int fd, const std::byte* data, int64_t count, int64_t offset) override {
    return Fails() ? -error_ : FileSystem::Write(fd, data, std::min<int64_t>(count, 7), offset);
  }
  int64_t CopyRange(int from, int64_t from_offset, int to, int64_t to_offset, int64_t count) override {
    if (Fails()) return -error_;
    return FileSystem::CopyRange(from, from_offset, to, to_offset, std::min<int64_t>(count, 3000));
  }
  int Truncate(int fd, int64_t bytes) override { return Fails() ? -error_ : FileSystem::Truncate(fd, bytes); }
  int Sync(int fd) override { return Fails() ? -error_ : 0; }
  int MakeFolder(const std::string& path) override {
    return Fails() ? -error_ : FileSystem::MakeFolder(path);
  }
  int Rename(const std::string& from, const std::string& to) override {
    return Fails() ? -error_ : FileSystem::Rename(from, to);
  }

 private:
  bool Fails() { return ++calls_ == victim_; }
  int64_t victim_;
  int error_;
  int64_t calls_ = 0;
};

TEST_F(NewFilesTest, AFaultAtAnyCallLeavesNothingOrAll) {
  const std::string expected = Expected();
  for (const auto& [error, exit] :
       {std::pair(ENOSPC, ExitCode::kResources), std::pair(EIO, ExitCode::kTransient)}) {
    int64_t victim = 1;
    for (;; ++victim) {
      SCOPED_TRACE(victim);
      FaultyFiles files(victim, error);
      const std::string out = folder_ / absl::StrCat("out", error, "_", victim);
      const auto written = WriteNewFiles(files, Plan(), &reader_, out);
      ASSERT_EQ(written.ok(), !files.struck());
      EXPECT_FALSE(fs::exists(out + ".partial"));
      // The last call of all syncs the folder around, when the new one has its name.
      EXPECT_TRUE(!fs::exists(out) || BytesIn(fs::path(out) / "data/inner/d") == expected);
      if (written.ok()) break;
      EXPECT_EQ(ExitCodeOf(written.status()), exit) << written.status();
      fs::remove_all(out);
    }
    EXPECT_GT(victim, 20);
  }
}

TEST_F(NewFilesTest, ASourceThatChangesMeanwhileIsRefused) {
  std::ofstream(source_->path(), std::ios::app | std::ios::binary) << "more";
  const auto written = WriteNewFiles(SystemFiles(), Plan(), &reader_, folder_ / "out");
  EXPECT_EQ(DiagnosticOf(written.status())->code, 1205) << written.status();
  EXPECT_FALSE(fs::exists(folder_ / "out") || fs::exists(folder_ / "out.partial"));
}

// A model of one weight [40, 30], inside or in a data file with bytes around it.
std::string WriteModel(const fs::path& folder, bool outside) {
  std::string bytes;
  for (int i = 0; i < 1200; ++i) {
    const float x = static_cast<float>(i);
    bytes.append(reinterpret_cast<const char*>(&x), sizeof(x));
  }
  ::onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(18);
  auto& weight = *model.mutable_graph()->add_initializer();
  weight.set_name("w"), weight.set_data_type(::onnx::TensorProto::FLOAT);
  weight.add_dims(40), weight.add_dims(30);
  if (outside) {
    std::ofstream(folder / "d.bin", std::ios::binary)
        << std::string(100, 'h') << bytes << std::string(50, 't');
    weight.set_data_location(::onnx::TensorProto::EXTERNAL);
    for (const auto& [key, value] :
         {std::pair("location", "d.bin"), std::pair("offset", "100"), std::pair("length", "4800")}) {
      auto& entry = *weight.add_external_data();
      entry.set_key(key), entry.set_value(value);
    }
  } else {
    weight.set_raw_data(bytes);
  }
  model.mutable_graph()->add_output()->set_name("w");
  const std::string path = folder / "m.onnx";
  std::ofstream(path, std::ios::binary) << model.SerializeAsString();
  return path;
}

// What recipes do: a weight in the place of an initializer is any program over initializers.
TEST_F(NewFilesTest, InitializersBecomeWeightPrograms) {
  int runs = 0;
  for (const bool outside : {false, true}) {
    for (const DataLayout layout : {DataLayout::kKeep, DataLayout::kSingle}) {
      for (const bool larger : {false, true}) {
        OnnxRewrite rewrite;
        rewrite.message = *ReadOnnxMessage(WriteModel(folder_, outside));
        ASSERT_TRUE(CheckedOnnxModel(rewrite.message).ok());
        const ::onnx::TensorProto& weight = rewrite.message.proto->graph().initializer(0);
        WeightPtr source =
            *rewrite.reader->Add("w", *PackedTensor::Of(weight, *rewrite.message.files, "w"), "w");
        WeightPtr turned = Transpose(source, {1, 0});
        rewrite.programs[&weight] = larger ? Cast(turned, DType::kF64) : Cast(turned, DType::kF16);
        const auto planned = PlanOnnxFiles(std::move(rewrite), layout, "m.onnx");
        ASSERT_TRUE(planned.ok()) << planned.status();
        const fs::path out = folder_ / absl::StrCat("out", runs++);
        ASSERT_TRUE(WriteNewFiles(SystemFiles(), planned->files, planned->rewrite.reader.get(), out).ok());
        const auto again = ReadOnnxModel(out / "m.onnx");
        ASSERT_TRUE(again.ok()) << again.status();
        const auto& made = *(*again)->graph.initializers[0].dense;
        const auto packed = *PackedTensor::Of(made, *(*again)->files, "w");
        EXPECT_EQ(packed.type(), larger ? ElementType::kDouble : ElementType::kFloat16);
        EXPECT_EQ(packed.shape(), (Shape{30, 40}));
        std::vector<std::byte> bytes(static_cast<size_t>(packed.byte_size()));
        ASSERT_TRUE(packed.ReadAt(0, packed.byte_size(), bytes.data()).ok());
        const DType dtype = larger ? DType::kF64 : DType::kF16;
        for (int64_t i = 0; i < 1200; ++i) {
          ASSERT_EQ(ToDouble(dtype, bytes.data() + i * ElementBytes(dtype)), i % 40 * 30 + i / 40);
        }
        if (outside && layout == DataLayout::kKeep) {  // what lies around it stays
          const std::string data = BytesIn(out / "d.bin");
          EXPECT_EQ(data.substr(0, 100), std::string(100, 'h'));
          EXPECT_EQ(data.substr(4900, 50), std::string(50, 't'));
        }
      }
    }
  }
}

}  // namespace
}  // namespace twinforge
