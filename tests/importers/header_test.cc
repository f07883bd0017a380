// Every way for one safetensors file to be wrong, each with the text that a user reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "importers/checkpoint.h"
#include "tests/importers/checkpoint_files.h"

namespace twinforge {
namespace {

struct Row {
  const char* name;
  std::string bytes;
  std::string expected;  // after "error[TF"
};

// One entry of dtype and shape, with offsets.
std::string Entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "{\"a\":{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}";
}
std::string U8(const std::string& shape, const std::string& offsets) {
  return Entry("\"U8\"", shape, offsets);
}
std::string Pair(const std::string& a, const std::string& b) { return "{" + a + "," + b + "}"; }

const std::string kFile = "DIR/model.safetensors: ";
const std::string kTensor = "DIR/model.safetensors: tensor \"a\": ";
std::string AtByte(int byte) {
  return absl::StrCat("1206]: DIR/model.safetensors: header byte ", byte, ": ");
}

std::vector<Row> Lengths() {
  const std::string good = Pair(Bytes("a", 0, 4), Bytes("b", 4, 8));
  return {
      {"Empty", "", "1210]: " + kFile + "the file is empty\n  hint: fetch it again\n"},
      {"SevenBytes", std::string(7, '\0'),
       "1210]: " + kFile + "has 7 bytes, and a header's length takes 8\n"},
      {"LengthZero", Length(0) + "{}", "1210]: " + kFile + "its header has 0 bytes, and {} takes 2\n"},
      {"LengthBeyondLimit", Length(100000001) + good,
       "1210]: " + kFile + "its header would have 100000001 bytes, and the format's limit is 100000000\n"},
      {"LengthBeyondFile", Length(100000000) + "{}",
       "1210]: " + kFile + "its header would have 100000000 bytes, and the file has 2 after the length\n"},
      {"LengthOneBeyondFile", Length(3) + "{}",
       "1210]: " + kFile + "its header would have 3 bytes, and the file has 2 after the length\n"},
      {"Length2To63", Length(uint64_t{1} << 63) + good,
       "1210]: " + kFile +
           "its header would have 9223372036854775808 bytes, and the format's limit is 100000000\n"},
      {"LengthAllOnes", Length(~uint64_t{0}) + good,
       "1210]: " + kFile +
           "its header would have 18446744073709551615 bytes, and the format's limit is 100000000\n"},
      {"ShortFile", File(good, 7),
       "1204]: " + kFile +
           "the tensors take 8 bytes, the file has 7 after its header\n"
           "  hint: the file was cut short; fetch it again\n"},
      {"TrailingBytes", File(good, 9), "1218]: " + kFile + "1 bytes follow the last tensor\n"},
      {"DataWithoutTensors", File("{}", 1), "1218]: " + kFile + "1 bytes follow the last tensor\n"},
      {"GitLfsPointer", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4\n",
       "1209]: " + kFile +
           "is a Git LFS pointer, not the file itself\n"
           "  hint: run `git lfs pull` in the checkpoint's folder\n"},
      {"HtmlPage", "<!DOCTYPE html>\n<html><body>Please log in</body></html>",
       "1209]: " + kFile +
           "is a web page\n  hint: the download failed or needs a login; fetch the file again\n"},
      {"HtmlPageAfterNewlines", "\n\n  <html><body>404</body></html>",
       "1209]: " + kFile +
           "is a web page\n  hint: the download failed or needs a login; fetch the file again\n"},
      {"Gguf", absl::StrCat("GGUF", std::string("\3\0\0\0", 4), std::string(20, '\0')),
       "1209]: " + kFile + "is a GGUF file\n  hint: fetch the safetensors form of the model\n"},
  };
}

std::vector<Row> Json() {
  return {
      {"NotABrace", File("[]", 0), "1211]: " + kFile + "the header begins with \"[\", not with \"{\"\n"},
      {"SpaceBeforeBrace", File(" {}", 0),
       "1211]: " + kFile + "the header begins with \" \", not with \"{\"\n"},
      {"ByteOrderMark", File("\xEF\xBB\xBF{}", 0), AtByte(0) + "begins with a byte-order mark\n"},
      {"InvalidUtf8", File("{\"a\xFF\":1}", 0), AtByte(3) + "is not valid UTF-8\n"},
      {"OverlongUtf8", File("{\"\xC0\xAF\":1}", 0), AtByte(2) + "is not valid UTF-8\n"},
      {"TrailingGarbage", File("{} x", 0), AtByte(3) + "something other than spaces follows the object\n"},
      {"TrailingNewline", File("{}\n", 0), AtByte(2) + "something other than spaces follows the object\n"},
      {"TrailingZeros", File(std::string("{}\0\0", 4), 0),
       AtByte(2) + "something other than spaces follows the object\n"},
      {"SecondObject", File("{}{}", 0), AtByte(2) + "something other than spaces follows the object\n"},
      {"Unfinished", File("{\"a\":{\"dtype\":\"U8\"", 0), AtByte(18) + "a comma or } should stand here\n"},
      {"UnfinishedString", File("{\"a", 0), AtByte(1) + "a string that does not end\n"},
      {"TrailingComma", File("{" + Bytes("a", 0, 1) + ",}", 1),
       AtByte(53) + "a key in quotes should stand here\n"},
      {"DepthBombInShape", File(U8(std::string(100000, '['), "[0,1]"), 1),
       "1212]: " + kTensor + "each of shape must be a number, found an array\n"},
      {"DepthBombAsEntry", File("{\"a\":" + std::string(100000, '['), 1),
       "1212]: " + kTensor + "the entry must be an object, found an array\n"},
      {"DuplicateTensor", File(Pair(Bytes("a", 0, 4), Bytes("a", 4, 8)), 8),
       AtByte(53) + "the key \"a\" appears twice in one object\n"},
      {"DuplicateTensorByEscape", File(Pair(Bytes("a", 0, 4), Bytes("\\u0061", 4, 8)), 8),
       AtByte(53) + "the key \"a\" appears twice in one object\n"},
      {"DuplicateField",
       File("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1),
       AtByte(19) + "the key \"dtype\" appears twice in one object\n"},
      {"DuplicateMetadata", File("{\"__metadata__\":{},\"__metadata__\":{}}", 0),
       AtByte(19) + "the key \"__metadata__\" appears twice in one object\n"},
      {"DuplicateMetadataKey", File("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0),
       AtByte(25) + "the key \"k\" appears twice in one object\n"},
      {"MetadataNumber", File("{\"__metadata__\":{\"format\":1}}", 0),
       "1217]: " + kFile + "__metadata__: the value of \"format\" must be a string, found a number\n"},
      {"MetadataObject", File("{\"__metadata__\":{\"k\":{}}}", 0),
       "1217]: " + kFile + "__metadata__: the value of \"k\" must be a string, found an object\n"},
      {"MetadataArray", File("{\"__metadata__\":[]}", 0),
       "1217]: " + kFile + "__metadata__: must be an object, found an array\n"},
      {"LoneSurrogate", File("{\"__metadata__\":{\"k\":\"\\ud800\"}}", 0),
       AtByte(22) + "half of a surrogate pair\n"},
      {"NotANumberAtAll", File(U8("[NaN]", "[0,1]"), 1), AtByte(28) + "a value should stand here\n"},
  };
}

std::vector<Row> Entries() {
  const std::string whole = " which is not a whole number from 0 to 2^53\n";
  return {
      {"UnknownDtype", File(Entry("\"BF17\"", "[1]", "[0,2]"), 2),
       "1213]: " + kTensor + "unknown dtype \"BF17\"\n  hint: did you mean BF16?\n"},
      {"LowerCaseDtype", File(Entry("\"f32\"", "[1]", "[0,4]"), 4),
       "1213]: " + kTensor + "unknown dtype \"f32\"\n  hint: did you mean F32?\n"},
      {"DtypeNumber", File(Entry("3", "[1]", "[0,4]"), 4),
       "1212]: " + kTensor + "dtype must be a string, found a number\n"},
      {"NegativeExtent", File(U8("[-1]", "[0,1]"), 1), "1214]: " + kTensor + "shape has -1," + whole},
      {"NegativeZero", File(U8("[-0]", "[0,0]"), 0), "1214]: " + kTensor + "shape has -0," + whole},
      {"Fraction", File(U8("[1.0]", "[0,1]"), 1), "1214]: " + kTensor + "shape has 1.0," + whole},
      {"Exponent", File(U8("[1e0]", "[0,1]"), 1), "1214]: " + kTensor + "shape has 1e0," + whole},
      {"ExponentInOffsets", File(U8("[1]", "[0,1e0]"), 1),
       "1214]: " + kTensor + "data_offsets has 1e0," + whole},
      {"Beyond2To53", File(U8("[9007199254740993]", "[0,1]"), 1),
       "1214]: " + kTensor + "shape has 9007199254740993," + whole},
      {"Beyond2To64", File(U8("[18446744073709551617]", "[0,1]"), 1),
       "1214]: " + kTensor + "shape has 18446744073709551617," + whole},
      {"ZeroWithPartnerOf2To64", File(U8("[0,18446744073709551616]", "[0,0]"), 0),
       "1214]: " + kTensor + "shape has 18446744073709551616," + whole},
      {"LeadingZero", File(U8("[01]", "[0,1]"), 1), AtByte(29) + "a number begins with 0\n"},
      {"OneOffset", File(U8("[1]", "[0]"), 1),
       "1212]: " + kTensor + "data_offsets must have two numbers, has 1\n"},
      {"ThreeOffsets", File(U8("[1]", "[0,1,1]"), 1),
       "1212]: " + kTensor + "data_offsets must have two numbers, has more\n"},
      {"OffsetsString", File(U8("[1]", "\"0,1\""), 1),
       "1212]: " + kTensor + "data_offsets must be an array, found a string\n"},
      {"ShapeString", File(U8("\"1\"", "[0,1]"), 1),
       "1212]: " + kTensor + "shape must be an array, found a string\n"},
      {"ExtentString", File(U8("[\"1\"]", "[0,1]"), 1),
       "1212]: " + kTensor + "each of shape must be a number, found a string\n"},
      {"EntryIsNull", File("{\"a\":null}", 0),
       "1212]: " + kTensor + "the entry must be an object, found null\n"},
      {"NoShape", File("{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1),
       "1212]: " + kTensor + "has no shape\n"},
      {"UnknownField", File("{\"a\":{\"dtype\":\"U8\",\"scale\":1}}", 1),
       "1212]: " + kTensor + "unknown field \"scale\"\n"},
      {"TooManyAxes",
       File(U8("[" + absl::StrReplaceAll(std::string(65, '1'), {{"1", "1,"}}) + "1]", "[0,1]"), 1),
       "1212]: " + kTensor + "shape has more than 64 axes\n"},
      {"EndBeforeBegin", File(U8("[1]", "[1,0]"), 1),
       "1215]: " + kTensor + "data_offsets end at 0, before they begin at 1\n"},
      {"SizeMismatch", File(Entry("\"F32\"", "[2,3]", "[0,20]"), 20),
       "1215]: " + kTensor + "shape [2, 3] of F32 takes 24 bytes, data_offsets give 20\n"},
      {"ScalarMismatch", File(Entry("\"F32\"", "[]", "[0,0]"), 0),
       "1215]: " + kTensor + "shape [] of F32 takes 4 bytes, data_offsets give 0\n"},
      {"F8Mismatch", File(Entry("\"F8_E4M3\"", "[4]", "[0,8]"), 8),
       "1215]: " + kTensor + "shape [4] of F8_E4M3 takes 4 bytes, data_offsets give 8\n"},
      {"F4OddCount", File(Entry("\"F4\"", "[3]", "[0,2]"), 2),
       "1215]: " + kTensor + "shape [3] of F4 takes 12 bits, which are not whole bytes\n"},
      {"F6TwoElements", File(Entry("\"F6_E2M3\"", "[2]", "[0,2]"), 2),
       "1215]: " + kTensor + "shape [2] of F6_E2M3 takes 12 bits, which are not whole bytes\n"},
      {"ProductOverflow", File(U8("[4294967296,4294967296]", "[0,0]"), 0),
       "1215]: " + kTensor + "shape [4294967296, 4294967296] of U8 overflows 64 bits\n"},
      {"OverflowBesideZero", File(U8("[4294967296,4294967296,0]", "[0,0]"), 0),
       "1215]: " + kTensor + "shape [4294967296, 4294967296, 0] of U8 overflows 64 bits\n"},
  };
}

std::vector<Row> Ranges() {
  const std::string b = "DIR/model.safetensors: tensor \"b\": ";
  return {
      {"HoleAtStart", File("{" + Bytes("a", 1, 2) + "}", 2),
       "1201]: " + kTensor + "bytes [0, 1) before it belong to no tensor\n"},
      {"HoleBetween", File(Pair(Bytes("a", 0, 4), Bytes("b", 6, 8)), 8),
       "1201]: " + b + "bytes [4, 6) before it belong to no tensor\n"},
      {"Overlap", File(Pair(Bytes("a", 0, 5), Bytes("b", 4, 8)), 8),
       "1201]: " + b + "bytes [4, 8) overlap tensor \"a\" at [0, 5)\n"},
      {"TwoNamesOnOneRange", File(Pair(Bytes("a", 0, 4), Bytes("b", 0, 4)), 4),
       "1201]: " + b + "bytes [0, 4) overlap tensor \"a\" at [0, 4)\n"},
      {"EmptyInsideAnother", File(Pair(Bytes("a", 0, 4), Bytes("b", 2, 2)), 4),
       "1201]: " + b + "bytes [2, 2) overlap tensor \"a\" at [0, 4)\n"},
      {"RangePastEnd", File("{" + Bytes("a", 0, 1000) + "}", 8),
       "1204]: " + kFile +
           "the tensors take 1000 bytes, the file has 8 after its header\n"
           "  hint: the file was cut short; fetch it again\n"},
      {"LargestRange", File(U8("[9007199254740992]", "[0,9007199254740992]"), 8),
       "1204]: " + kFile +
           "the tensors take 9007199254740992 bytes, the file has 8 after its header\n"
           "  hint: the file was cut short; fetch it again\n"},
  };
}

std::vector<Row> Names() {
  const std::string hint =
      "  hint: rename the tensor: two spellings of one letter would make two tensors that look alike\n";
  return {
      {"EmptyName", File("{" + Bytes("", 0, 1) + "}", 1), "1216]: " + kFile + "a tensor has an empty name\n"},
      {"NameWithZero", File("{" + Bytes("a\\u0000b", 0, 1) + "}", 1),
       "1216]: " + kFile + "tensor \"a\\u0000b\": the name has a control character\n"},
      {"NameWithNewline", File("{" + Bytes("a\\nb", 0, 1) + "}", 1),
       "1216]: " + kFile + "tensor \"a\\nb\": the name has a control character\n"},
      {"NameWithEscapeCode", File("{" + Bytes("\\u001b[31m", 0, 1) + "}", 1),
       "1216]: " + kFile + "tensor \"\\u001b[31m\": the name has a control character\n"},
      {"NameWithRawNewline", File("{" + Bytes("a\nb", 0, 1) + "}", 1),
       AtByte(3) + "a control character inside a string\n"},
      {"NameOf4097Bytes", File("{" + Bytes(std::string(4097, 'n'), 0, 1) + "}", 1),
       "1216]: " + kFile + "tensor \"" + std::string(100, 'n') +
           "\"... (4097 bytes): a name of 4097 bytes, and at most 4096 are accepted\n"},
      // The same letter, composed and decomposed: neither gets in, so they cannot meet.
      {"NameComposed", File(Pair(Bytes("\xC3\xA9", 0, 1), Bytes("e\xCC\x81", 1, 2)), 2),
       "1216]: " + kFile + "tensor \"\\u00e9\": the name has characters beyond ASCII\n" + hint},
      {"NameDecomposed", File(Pair(Bytes("e\xCC\x81", 0, 1), Bytes("\xC3\xA9", 1, 2)), 2),
       "1216]: " + kFile + "tensor \"e\\u0301\": the name has characters beyond ASCII\n" + hint},
  };
}

class Rejected : public testing::TestWithParam<Row> {};

TEST_P(Rejected, WithExactText) {
  const TempFolder folder;
  folder.Write("model.safetensors", GetParam().bytes);
  const auto checkpoint = Checkpoint::Open(folder / "model.safetensors");
  EXPECT_EQ(folder.Text(checkpoint.status()), "error[TF" + GetParam().expected);
}

std::string RowName(const testing::TestParamInfo<Row>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Lengths, Rejected, testing::ValuesIn(Lengths()), RowName);
INSTANTIATE_TEST_SUITE_P(Json, Rejected, testing::ValuesIn(Json()), RowName);
INSTANTIATE_TEST_SUITE_P(Entries, Rejected, testing::ValuesIn(Entries()), RowName);
INSTANTIATE_TEST_SUITE_P(Ranges, Rejected, testing::ValuesIn(Ranges()), RowName);
INSTANTIATE_TEST_SUITE_P(Names, Rejected, testing::ValuesIn(Names()), RowName);

absl::Status OpenStatus(const std::string& path) { return Checkpoint::Open(path).status(); }

TEST(Accepted, WhatTheFormatAllows) {
  const TempFolder folder;
  const std::string long_name(4096, 'n');
  const std::vector<std::string> good = {
      File("{}", 0),
      File("{}      ", 0),
      File("{ \"a\" :\n{\"shape\":[] , \"data_offsets\":[0,4],\t\"dtype\":\"F32\"} }", 4),
      File("{\"__metadata__\":{\"format\":\"pt\",\"\\u0000\":\"\xC3\xA9\\ud83d\\ude00\"}," +
               Bytes("a", 0, 1) + "}",
           1),
      File("{" + Bytes("z", 0, 0) + "," + Bytes("y", 0, 0) + "," + Bytes("a", 0, 4) + "," + Bytes("x", 4, 4) +
               "}",
           4),
      File("{" + Bytes("b", 4, 8) + "," + Bytes("a", 0, 4) + "}", 8),  // keys not in offset order
      File("{" + Bytes(long_name, 0, 1) + "}", 1),
      File("{" + Bytes("a b/c\\\\d\\\"e", 0, 1) + "}", 1),
      File(Entry("\"F4\"", "[3,2]", "[0,3]"), 3),
      File(Entry("\"F6_E3M2\"", "[4]", "[0,3]"), 3),
      File(U8("[0,4294967296]", "[0,0]"), 0),
  };
  for (const std::string& bytes : good) {
    folder.Write("model.safetensors", bytes);
    EXPECT_EQ(folder.Text(OpenStatus(folder / "model.safetensors")), "ok") << bytes.substr(8, 200);
  }
}

TEST(Accepted, EveryDtype) {
  for (const DType dtype : AllDTypes()) {
    const int64_t bytes = BitWidth(dtype);  // of eight elements
    const std::string header =
        Entry(absl::StrCat("\"", SafetensorsName(dtype), "\""), "[8]", absl::StrCat("[0,", bytes, "]"));
    const auto parsed = ParseSafetensorsHeader(header, 8 + header.size() + bytes, "f");
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->tensors[0].dtype, dtype);
    EXPECT_EQ(parsed->tensors[0].bytes, bytes);
    EXPECT_EQ(parsed->tensors[0].offset, 8 + static_cast<int64_t>(header.size()));
  }
}

TEST(Rejected, FifoFolderAndDeviceWithoutBlocking) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe.safetensors").c_str(), 0600), 0);
  EXPECT_EQ(folder.Text(OpenStatus(folder / "pipe.safetensors")),
            "error[TF1203]: DIR/pipe.safetensors: is a FIFO, not a regular file\n");
  EXPECT_EQ(folder.Text(OpenStatus(folder.path())),
            "error[TF1203]: DIR/pipe.safetensors: is a FIFO, not a regular file\n");
  EXPECT_EQ(folder.Text(OpenStatus("/dev/zero")),
            "error[TF1203]: /dev/zero: is a device, not a regular file\n");
  EXPECT_EQ(folder.Text(OpenStatus(folder / "none")), "error[TF1202]: DIR/none: no such file or folder\n");
}

// A law: whatever is cut off, something is missing, and that is said.
TEST(Laws, NoPrefixOfAFileIsAFile) {
  const std::string whole =
      File("{\"__metadata__\":{\"format\":\"pt\"}," + Bytes("a", 0, 4) + "," + Bytes("b", 4, 8) + "} ", 8);
  const TempFolder folder;
  for (size_t cut = 0; cut < whole.size(); ++cut) {
    folder.Write("model.safetensors", whole.substr(0, cut));
    const absl::Status status = OpenStatus(folder / "model.safetensors");
    EXPECT_FALSE(status.ok()) << cut;
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kCorrupt) << cut << status;
  }
  folder.Write("model.safetensors", whole);
  EXPECT_TRUE(OpenStatus(folder / "model.safetensors").ok());
}

// A law: a flipped bit is refused, or changes a name, a note, or nothing: never where data lies.
TEST(Laws, NoFlippedBitMovesData) {
  const std::string header =
      "{\"__metadata__\":{\"format\":\"pt\"}," + Bytes("a", 0, 4) + "," + Bytes("b", 4, 12) + "} ";
  const int64_t file_size = 8 + static_cast<int64_t>(header.size()) + 12;
  int refused = 0, harmless = 0;
  for (size_t bit = 0; bit < header.size() * 8; ++bit) {
    std::string flipped = header;
    flipped[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    const auto parsed = ParseSafetensorsHeader(flipped, file_size, "f");
    if (!parsed.ok()) {
      ++refused;
      EXPECT_TRUE(DiagnosticOf(parsed.status()).has_value()) << parsed.status();
      continue;
    }
    ++harmless;
    int64_t bytes = 0;
    for (const StoredTensor& tensor : parsed->tensors) {
      EXPECT_EQ(tensor.offset, parsed->header_bytes + bytes);
      EXPECT_EQ(tensor.bytes, *FileBytes(tensor.dtype, ElementCount(tensor.shape)));
      bytes += tensor.bytes;
    }
    EXPECT_EQ(parsed->header_bytes + bytes, file_size);
  }
  EXPECT_GT(refused, 10 * harmless / 4);
  EXPECT_GT(harmless, 0);
}

// Linear time: a quadratic search for duplicates or overlaps would take hours here, and the
// test's own time limit would end it.
TEST(Laws, AMillionTensors) {
  std::string header = "{";
  for (int i = 0; i < 1000000; ++i) {
    absl::StrAppend(&header, i == 0 ? "" : ",", "\"t", i,
                    "\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[", 2 * i, ",", 2 * i + 2, "]}");
  }
  header += "}";
  const auto parsed = ParseSafetensorsHeader(header, 8 + header.size() + 2000000, "f");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->tensors.size(), 1000000u);
}

}  // namespace
}  // namespace twinforge
