#include "onnx/field_heads.h"

#include <algorithm>

#include "base/diagnostic.h"
#include "base/status_macros.h"

namespace twinforge {
namespace {

constexpr int64_t kWindow = int64_t{1} << 16;

}  // namespace

absl::Status NoModel(const ModelBytes& bytes) {
  return Error(2001, bytes.name(), "is no ONNX model: its bytes do not parse as the format's message",
               "the file is cut short, damaged, of another kind, or nested too deeply");
}

absl::Status FieldHeads::Varint(int64_t& at, int64_t end, uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (at >= end) return NoModel(bytes_);
    if (at < window_begin_ || at >= window_begin_ + static_cast<int64_t>(window_.size())) {
      window_.resize(static_cast<size_t>(std::min(kWindow, bytes_.size() - at)));
      window_begin_ = at;
      TWIN_RETURN_IF_ERROR(bytes_.ReadAt(at, static_cast<int64_t>(window_.size()),
                                         reinterpret_cast<std::byte*>(window_.data())));
    }
    const uint8_t byte = window_[static_cast<size_t>(at++ - window_begin_)];
    if (shift < 64) value |= uint64_t{byte & 0x7fu} << shift;
    if ((byte & 0x80) == 0) return absl::OkStatus();
  }
  return NoModel(bytes_);
}

absl::StatusOr<FieldHead> FieldHeads::At(int64_t at, int64_t end) {
  uint64_t tag = 0, length = 0;
  TWIN_RETURN_IF_ERROR(Varint(at, end, tag));
  FieldHead field;
  field.number = static_cast<uint32_t>(tag >> 3);
  field.wire = static_cast<WireType>(tag & 7);
  if (tag > UINT32_MAX || field.number == 0) return NoModel(bytes_);
  switch (field.wire) {
    case WireType::kVarint:
      TWIN_RETURN_IF_ERROR(Varint(at, end, length));
      length = 0;
      break;
    case WireType::kLength:
      TWIN_RETURN_IF_ERROR(Varint(at, end, length));
      break;
    case WireType::kFixed64:
      length = 8;
      break;
    case WireType::kFixed32:
      length = 4;
      break;
    case WireType::kGroup: {
      TWIN_ASSIGN_OR_RETURN(const int64_t group_end, GroupEnd(at, end, field.number));
      length = static_cast<uint64_t>(group_end - at);
      break;
    }
    default:
      return NoModel(bytes_);
  }
  if (length > static_cast<uint64_t>(end - at)) return NoModel(bytes_);
  field.content = at;
  field.end = at + static_cast<int64_t>(length);
  return field;
}

// Behind the tag that ends a group: an unknown field of the old kind, in which others may lie.
absl::StatusOr<int64_t> FieldHeads::GroupEnd(int64_t at, int64_t end, uint64_t number) {
  std::vector<uint64_t> open = {number};
  while (!open.empty()) {
    if (open.size() > deepest_) return NoModel(bytes_);
    const int64_t head = at;
    uint64_t tag = 0;
    TWIN_RETURN_IF_ERROR(Varint(at, end, tag));
    const auto wire = static_cast<WireType>(tag & 7);
    if (wire == WireType::kGroup) {
      open.push_back(tag >> 3);
    } else if (wire == WireType::kGroupEnd) {
      if (open.back() != tag >> 3) return NoModel(bytes_);
      open.pop_back();
    } else {
      TWIN_ASSIGN_OR_RETURN(const FieldHead field, At(head, end));
      at = field.end;
    }
  }
  return at;
}

}  // namespace twinforge
