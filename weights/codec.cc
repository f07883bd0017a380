#include "weights/codec.h"

#include <cstring>

#include "base/check.h"

namespace twinforge {
namespace {

uint32_t Code(std::byte element) { return std::to_integer<uint32_t>(element); }

}  // namespace

int64_t PackingGranule(DType dtype) {
  switch (BitWidth(dtype)) {
    case 4:
      return 2;
    case 6:
      return 4;
    default:
      return 1;
  }
}

void Unpack(DType dtype, const std::byte* packed, int64_t count, std::byte* elements) {
  const int64_t granule = PackingGranule(dtype);
  TWIN_CHECK(count % granule == 0, "unpacking a part of a byte");
  if (granule == 1) {
    std::memcpy(elements, packed, count * ElementBytes(dtype));
  } else if (granule == 2) {
    for (int64_t i = 0; i < count; i += 2) {
      elements[i] = packed[i / 2] & std::byte{0x0f};
      elements[i + 1] = packed[i / 2] >> 4;
    }
  } else {
    for (int64_t i = 0; i < count; i += 4, packed += 3) {
      const uint32_t word = Code(packed[0]) | Code(packed[1]) << 8 | Code(packed[2]) << 16;
      for (int k = 0; k < 4; ++k) elements[i + k] = static_cast<std::byte>(word >> (6 * k) & 0x3f);
    }
  }
}

void Pack(DType dtype, const std::byte* elements, int64_t count, std::byte* packed) {
  const int64_t granule = PackingGranule(dtype);
  TWIN_CHECK(count % granule == 0, "packing a part of a byte");
  if (granule == 1) {
    std::memcpy(packed, elements, count * ElementBytes(dtype));
  } else if (granule == 2) {
    for (int64_t i = 0; i < count; i += 2) {
      packed[i / 2] = (elements[i] & std::byte{0x0f}) | elements[i + 1] << 4;
    }
  } else {
    for (int64_t i = 0; i < count; i += 4, packed += 3) {
      uint32_t word = 0;
      for (int k = 0; k < 4; ++k) word |= (Code(elements[i + k]) & 0x3f) << (6 * k);
      for (int k = 0; k < 3; ++k) packed[k] = static_cast<std::byte>(word >> (8 * k) & 0xff);
    }
  }
}

}  // namespace twinforge
