// The wire format of protobuf, as far as the heads of fields: which field, and where it ends.
//
//   0a 05 "hello"     number 1, kLength, content at 2, end at 7
//
// Bytes may be anybody's: what is no field, or reaches over the end of what it lies in, is TF2001.
#ifndef TWINFORGE_ONNX_FIELD_HEADS_H_
#define TWINFORGE_ONNX_FIELD_HEADS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "onnx/model_bytes.h"

namespace twinforge {

enum class WireType : uint8_t {
  kVarint = 0,
  kFixed64 = 1,
  kLength = 2,
  kGroup = 3,
  kGroupEnd = 4,
  kFixed32 = 5
};

struct FieldHead {
  uint32_t number = 0;
  WireType wire = WireType::kVarint;
  int64_t content = 0, end = 0;  // where what it holds begins, and where the next field does
};

// Reads a window of the file at a time; fast where places ascend.
class FieldHeads {
 public:
  FieldHeads(const ModelBytes& bytes, size_t deepest_group) : bytes_(bytes), deepest_(deepest_group) {}
  // The field at `at` of a message that ends at `end`.
  absl::StatusOr<FieldHead> At(int64_t at, int64_t end);

 private:
  absl::Status Varint(int64_t& at, int64_t end, uint64_t& value);
  absl::StatusOr<int64_t> GroupEnd(int64_t at, int64_t end, uint64_t number);

  const ModelBytes& bytes_;
  size_t deepest_;
  std::vector<uint8_t> window_;
  int64_t window_begin_ = 0;
};

// TF2001 of a whole file.
absl::Status NoModel(const ModelBytes& bytes);

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_FIELD_HEADS_H_
