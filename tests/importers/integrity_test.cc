// What a scan of the values says, per type, and that threads and blocks do not show in it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "importers/checkpoint.h"
#include "tests/importers/checkpoint_files.h"

namespace twinforge {
namespace {

using testing::ElementsAre;

// Puts tensors of f64 values, converted to `dtype`, into one file.
class FileOfValues {
 public:
  void Add(const std::string& name, DType dtype, const std::vector<double>& values) {
    std::string bytes(values.size() * ElementBytes(dtype), '\0');
    for (size_t i = 0; i < values.size(); ++i) {
      FromDouble(dtype, values[i], reinterpret_cast<std::byte*>(bytes.data()) + i * ElementBytes(dtype));
    }
    AddBytes(name, dtype, static_cast<int64_t>(values.size()), bytes);
  }
  void AddBytes(const std::string& name, DType dtype, int64_t count, const std::string& bytes) {
    absl::StrAppend(&header_, header_.empty() ? "{" : ",", "\"", name, "\":{\"dtype\":\"",
                    SafetensorsName(dtype), "\",\"shape\":[", count, "],\"data_offsets\":[", data_.size(),
                    ",", data_.size() + bytes.size(), "]}");
    data_ += bytes;
  }
  std::vector<std::string> Scan(int threads = 1, int64_t block_bytes = 8 << 20) const {
    const TempFolder folder;
    folder.Write("model.safetensors", File(header_ + "}", data_));
    const auto checkpoint = Checkpoint::Open(folder.path());
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    const auto rows = ScanIntegrity(**checkpoint, threads, block_bytes);
    EXPECT_TRUE(rows.ok()) << rows.status();
    std::vector<std::string> texts;
    for (const IntegrityRow& row : *rows) {
      EXPECT_EQ(row.file, "model.safetensors");
      texts.push_back(absl::StrCat(row.tensor, ": ", row.finding));
    }
    return texts;
  }

 private:
  std::string header_, data_;
};

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Integrity, FindsInEveryWideFloat) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    FileOfValues file;
    file.Add("constant", dtype, {0.5, 0.5, 0.5});
    file.Add("good", dtype, {1, -2, 0});
    file.Add("infinite", dtype, {kInf, 1, -kInf});
    file.Add("nan", dtype, {1, kNan, 2, -kNan});
    file.Add("zero", dtype, {0, -0.0, 0});
    EXPECT_THAT(file.Scan(),
                ElementsAre("constant: constant 0.5", "infinite: 2 Inf", "nan: 2 NaN", "zero: all zero"))
        << Name(dtype);
  }
}

TEST(Integrity, LargestFiniteIsNotInfinite) {
  FileOfValues file;
  file.AddBytes("bf16", DType::kBF16, 2, std::string("\x7f\x7f\x7f\xff", 4));
  file.AddBytes("f16", DType::kF16, 2, std::string("\xff\x7b\xff\xfb", 4));
  file.AddBytes("f16_nan", DType::kF16, 2, std::string("\x01\x7c\xff\xfb", 4));
  EXPECT_THAT(file.Scan(), ElementsAre("f16_nan: 1 NaN"));
}

TEST(Integrity, FindsInEveryNarrowFloat) {
  FileOfValues file;
  file.Add("e4m3", DType::kF8E4M3, {kNan, 448, kNan});
  file.Add("e4m3_fnuz", DType::kF8E4M3Fnuz, {kNan, 1});
  file.Add("e5m2", DType::kF8E5M2, {kInf, -kInf, kNan, 1});
  file.AddBytes("e8m0", DType::kF8E8M0, 3, "\x7f\x7f\x7f");  // 2^0 thrice; the type has no zero
  file.AddBytes("e8m0_nan", DType::kF8E8M0, 2, "\xff\x7f");
  file.AddBytes("f4", DType::kF4, 4, "\x22\x22");       // 1.0 four times
  file.AddBytes("f4_zero", DType::kF4, 4, "\x80\x08");  // +0 and -0
  EXPECT_THAT(file.Scan(),
              ElementsAre("e4m3: 2 NaN", "e4m3_fnuz: 1 NaN", "e5m2: 1 NaN", "e5m2: 2 Inf", "e8m0: constant 1",
                          "e8m0_nan: 1 NaN", "f4: constant 1", "f4_zero: all zero"));
}

TEST(Integrity, IntegersOnlyWhenAllAreEqual) {
  FileOfValues file;
  file.AddBytes("bool", DType::kBool, 3, "\1\1\1");
  file.Add("i16", DType::kI16, {-32768, 32767, 31744});
  file.Add("i32", DType::kI32, {-7, -7});
  file.AddBytes("i64", DType::kI64, 2, std::string("\1\0\0\0\0\0\x20\0\1\0\0\0\0\0\x20\0", 16));  // 2^53 + 1
  file.AddBytes("u64", DType::kU64, 2, std::string(16, '\xff'));
  file.AddBytes("u8", DType::kU8, 3, std::string("\0\0\0", 3));
  EXPECT_THAT(file.Scan(),
              ElementsAre("bool: constant 1", "i32: constant -7", "i64: constant 9007199254740993",
                          "u64: constant 18446744073709551615", "u8: all zero"));
}

TEST(Integrity, OneElementAndNoneSayNothing) {
  FileOfValues file;
  file.Add("empty", DType::kF32, {});
  file.Add("nan", DType::kF32, {kNan});
  file.Add("one", DType::kF32, {3});
  file.Add("zero", DType::kF32, {0});
  EXPECT_THAT(file.Scan(), ElementsAre("nan: 1 NaN"));
}

TEST(Integrity, ComplexByItsParts) {
  FileOfValues file;
  file.Add("halves", DType::kF32, {0, 0, 0, 0});  // keeps what follows aligned oddly on purpose
  file.AddBytes("z", DType::kC64, 2,
                std::string("\0\0\x80\x3f\0\0\0\x40\0\0\x80\x3f\0\0\0\x40", 16));  // 1+2i
  EXPECT_THAT(file.Scan(), ElementsAre("halves: all zero", "z: constant 1+2i"));
}

// A law: blocks and threads are not seen in the report, wherever a block ends.
TEST(Integrity, SameForAnyBlocksAndThreads) {
  std::vector<double> constant(1000, 2.0), almost = constant, sprinkled(1000, 1.0);
  almost[999] = 3;
  for (int i = 0; i < 1000; i += 7) sprinkled[i] = kNan;
  FileOfValues file;
  file.Add("almost", DType::kBF16, almost);
  file.Add("constant", DType::kBF16, constant);
  file.Add("late", DType::kBF16, [] {
    std::vector<double> v(1000, 0.0);
    v[64] = 1;
    return v;
  }());
  file.Add("sprinkled", DType::kF32, sprinkled);
  file.AddBytes("steps", DType::kF6E2M3, 128, std::string(48, '\0') + std::string(48, '\1'));
  file.Add("zero", DType::kF8E4M3, std::vector<double>(1000, 0.0));
  const std::vector<std::string> expected = {"constant: constant 2", "sprinkled: 143 NaN", "zero: all zero"};
  for (const int64_t block : {1, 128, 129, 256, 1000, 8 << 20}) {
    for (const int threads : {1, 2, 5})
      EXPECT_EQ(file.Scan(threads, block), expected) << block << " " << threads;
  }
}

TEST(Integrity, AShortFileIsToldAndStops) {
  const TempFolder folder;
  folder.Write("model.safetensors", File("{" + Bytes("a", 0, 100000) + "}", 100000));
  const auto checkpoint = Checkpoint::Open(folder.path());
  ASSERT_TRUE(checkpoint.ok());
  std::filesystem::resize_file(folder / "model.safetensors", 50000);
  const auto rows = ScanIntegrity(**checkpoint, 3, 1024);
  ASSERT_TRUE(DiagnosticOf(rows.status()).has_value());
  EXPECT_EQ(DiagnosticOf(rows.status())->code, 1204);
}

}  // namespace
}  // namespace twinforge
