// The element types of stored tensors, and exact conversion between them.
//
// The list is the one of the safetensors format (22 names, its "dtype" strings). A
// type here is what a *file* may hold; how codes narrower than a byte are packed in a
// file is a codec's affair (codec.h). Inside the house one element of a 4- or 6-bit
// type occupies one byte, its code in the low bits.
//
// Converting to double is exact for every code of every type but I64 and U64 beyond
// 2^53. Converting from double rounds to nearest, ties to even, once; what overflows
// becomes infinity where the type has one, else NaN where it has one, else the largest
// value (OCP 8-bit formats, MX 4- and 6-bit formats). ml_dtypes is the judge in tests.
#ifndef TWINFORGE_WEIGHTS_DTYPE_H_
#define TWINFORGE_WEIGHTS_DTYPE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace twinforge {

enum class DType : uint8_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};
inline constexpr int kDTypeCount = 22;

// All types, in the order of the enumeration (safetensors' own order).
absl::Span<const DType> AllDTypes();

// "BF16": the spelling in safetensors headers.
absl::string_view SafetensorsName(DType dtype);
std::optional<DType> DTypeFromSafetensors(absl::string_view name);

// "bf16": the spelling in our texts and in recipes; "float32" and the like are not accepted.
absl::string_view Name(DType dtype);
std::optional<DType> DTypeFromName(absl::string_view name);

// Bits of one element in a file: 4, 6, 8, 16, 32 or 64.
int64_t BitWidth(DType dtype);

// Bytes of one element in memory: 1 for everything narrower than a byte.
int64_t ElementBytes(DType dtype);

// Bytes of `count` packed elements in a file; nullopt where they do not fill whole
// bytes or the product overflows.
std::optional<int64_t> FileBytes(DType dtype, int64_t count);

bool IsFloat(DType dtype);    // any floating type, complex not
bool IsInteger(DType dtype);  // any integer, bool not

// Whether every value of `from` is a value of `to`.
bool IsLossless(DType from, DType to);

// One element at `at` (ElementBytes wide, little-endian) as a double, and back.
// REQUIRES: dtype is not kC64.
double ToDouble(DType dtype, const std::byte* at);
void FromDouble(DType dtype, double value, std::byte* at);

// Converts `count` elements. Every NaN stays a NaN; equal types are copied bit for bit.
// REQUIRES: neither type is kC64 unless both are.
void Convert(DType from, const std::byte* in, DType to, std::byte* out, int64_t count);

}  // namespace twinforge

#endif  // TWINFORGE_WEIGHTS_DTYPE_H_
