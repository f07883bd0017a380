// The header of a safetensors file, written as the format's own library writes it.
//
//   8 bytes   N, little-endian
//   N bytes   {"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}, ...}
//             padded with spaces to a multiple of 8
//   data      tensors one after another, no gap
//
// Order: dtype by alignment, widest first (the format's enumeration, descending), then
// name; so every tensor begins at a multiple of its element's width and a reader may map it. Keys of
// the JSON follow that order, metadata first. Same tensors, same bytes.
#ifndef TWINFORGE_EXPORTERS_HEADER_H_
#define TWINFORGE_EXPORTERS_HEADER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "weights/dtype.h"
#include "weights/shape.h"

namespace twinforge {

struct HeaderEntry {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  int64_t bytes = 0;  // as stored
};

using Metadata = std::vector<std::pair<std::string, std::string>>;  // in the order of the file

// The order of the format's own writer.
bool WrittenBefore(const HeaderEntry& a, const HeaderEntry& b);

// 8 length bytes and the JSON for `entries`, lying in this order from offset 0.
std::string WriteHeader(absl::Span<const HeaderEntry> entries, const Metadata& metadata);

// What a header says, in the order of its data. `text` is the JSON, already found sound by
// an importer: nothing but what WriteHeader needs is looked at here.
struct ReadHeader {
  std::vector<HeaderEntry> entries;  // ascending by offset
  Metadata metadata;
};
absl::StatusOr<ReadHeader> ParseHeader(absl::string_view text, absl::string_view place);

// A file's first 8 + N bytes.
absl::StatusOr<std::string> ReadHeaderBytes(const std::string& path);

}  // namespace twinforge

#endif  // TWINFORGE_EXPORTERS_HEADER_H_
