#include "exporters/header.h"

#include <gtest/gtest.h>

#include "tests/exporters/fixture.h"

namespace twinforge {
namespace {

TEST(Header, IsWrittenAsTheFormatsOwnLibraryWritesIt) {
  // What safetensors.torch.save_file({"a": torch.zeros(2)}, f, {"format": "pt"}) writes in Python.
  std::string written = WriteHeader({{"a", DType::kF32, {2}, 8}}, {{"format", "pt"}});
  std::string json =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  json.append((8 - json.size() % 8) % 8, ' ');
  EXPECT_EQ(written.substr(8), json);
  EXPECT_EQ(static_cast<unsigned char>(written[0]), json.size());
  EXPECT_EQ(written.size() % 8, 0u);
}

TEST(Header, OrdersByWidthThenName) {
  HeaderEntry wide{"z", DType::kF32}, b{"b", DType::kBF16}, a{"a", DType::kBF16}, narrow{"a0", DType::kI8};
  EXPECT_TRUE(WrittenBefore(wide, a));
  EXPECT_TRUE(WrittenBefore(a, b));
  EXPECT_TRUE(WrittenBefore(b, narrow));
  EXPECT_FALSE(WrittenBefore(b, a));
}

TEST(Header, ScalarsEmptyTensorsAndOddNamesSurviveARoundTrip) {
  std::vector<HeaderEntry> entries = {{"quote\"back\\slash", DType::kF32, {}, 4},
                                      {"none", DType::kBF16, {0, 3}, 0},
                                      {"last", DType::kI8, {3}, 3}};
  Metadata metadata = {{"z", "1"}, {"a", "line\nbreak"}};
  std::string written = WriteHeader(entries, metadata);
  absl::StatusOr<ReadHeader> read = ParseHeader(absl::string_view(written).substr(8), "h");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->metadata, metadata);
  ASSERT_EQ(read->entries.size(), 3u);
  EXPECT_EQ(read->entries[0].name, entries[0].name);
  EXPECT_EQ(read->entries[1].shape, (Shape{0, 3}));
  EXPECT_EQ(WriteHeader(read->entries, read->metadata), written);
}

TEST(Header, OfARealCheckpointIsReproduced) {
  absl::StatusOr<std::string> bytes = ReadHeaderBytes(TinyLlama() + "/model.safetensors");
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  absl::StatusOr<ReadHeader> read = ParseHeader(absl::string_view(*bytes).substr(8), "tiny");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(WriteHeader(read->entries, read->metadata), *bytes);
}

}  // namespace
}  // namespace twinforge
