// Packing: how elements narrower than a byte lie in a file.
//
// Packing is layout, not algebra, so it happens at the edges only: `Source` unpacks
// what it reads, a sink packs what it writes. 4-bit types: two codes a byte, the first
// in the low nibble. 6-bit types: four codes in three bytes, little-endian, the first
// in the lowest bits. Wider types pass through untouched.
#ifndef TWINFORGE_WEIGHTS_CODEC_H_
#define TWINFORGE_WEIGHTS_CODEC_H_

#include <cstddef>
#include <cstdint>

#include "weights/dtype.h"

namespace twinforge {

// Elements between two positions at which packed data may be cut at a byte: 1, 2 or 4.
int64_t PackingGranule(DType dtype);

// REQUIRES: count % PackingGranule(dtype) == 0; buffers hold count elements.
void Unpack(DType dtype, const std::byte* packed, int64_t count, std::byte* elements);
void Pack(DType dtype, const std::byte* elements, int64_t count, std::byte* packed);

}  // namespace twinforge

#endif  // TWINFORGE_WEIGHTS_CODEC_H_
