#include "weights/dtype.h"

#include <array>

#include "base/check.h"
#include "weights/minifloat.h"

namespace twinforge {
namespace {

struct TypeInfo {
  DType dtype;
  absl::string_view safetensors;
  absl::string_view name;
  int bits;
};

constexpr TypeInfo kTypes[kDTypeCount] = {
    {DType::kBool, "BOOL", "bool", 8},
    {DType::kF4, "F4", "f4", 4},
    {DType::kF6E2M3, "F6_E2M3", "f6_e2m3", 6},
    {DType::kF6E3M2, "F6_E3M2", "f6_e3m2", 6},
    {DType::kU8, "U8", "u8", 8},
    {DType::kI8, "I8", "i8", 8},
    {DType::kF8E5M2, "F8_E5M2", "f8_e5m2", 8},
    {DType::kF8E4M3, "F8_E4M3", "f8_e4m3", 8},
    {DType::kF8E8M0, "F8_E8M0", "f8_e8m0", 8},
    {DType::kF8E4M3Fnuz, "F8_E4M3FNUZ", "f8_e4m3fnuz", 8},
    {DType::kF8E5M2Fnuz, "F8_E5M2FNUZ", "f8_e5m2fnuz", 8},
    {DType::kI16, "I16", "i16", 16},
    {DType::kU16, "U16", "u16", 16},
    {DType::kF16, "F16", "f16", 16},
    {DType::kBF16, "BF16", "bf16", 16},
    {DType::kI32, "I32", "i32", 32},
    {DType::kU32, "U32", "u32", 32},
    {DType::kF32, "F32", "f32", 32},
    {DType::kC64, "C64", "c64", 64},
    {DType::kF64, "F64", "f64", 64},
    {DType::kI64, "I64", "i64", 64},
    {DType::kU64, "U64", "u64", 64},
};

const TypeInfo& Info(DType dtype) { return kTypes[static_cast<int>(dtype)]; }

// What a type can say: all of `from`'s must be within `to`'s for a cast to lose nothing.
struct Range {
  int digits;     // significant bits
  int lowest;     // exponent of the smallest step
  int highest;    // exponent of the largest power of two
  bool integer;   // no specials, and -0 is 0
  bool negative;  // has negative numbers
  bool zero = true;
  bool negative_zero = false;
  bool infinity = false;
  bool nan = false;
};

Range FloatRange(Minifloat f) {
  Range range{.digits = f.mantissa_bits + 1,
              .lowest = 1 - f.bias - f.mantissa_bits,
              .highest = static_cast<int>(LargestCode(f) >> f.mantissa_bits) - f.bias,
              .integer = false,
              .negative = true};
  range.negative_zero = f.specials != Specials::kNegativeZero;
  range.infinity = f.specials == Specials::kIeee;
  range.nan = f.specials != Specials::kNone;
  if (f.specials == Specials::kScaleOnly) {
    range.lowest = -f.bias;
    range.negative = range.zero = range.negative_zero = false;
  }
  return range;
}

Range RangeOf(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return {.digits = 1, .lowest = 0, .highest = 0, .integer = true, .negative = false};
    case DType::kF4:
      return FloatRange(kE2M1);
    case DType::kF6E2M3:
      return FloatRange(kE2M3);
    case DType::kF6E3M2:
      return FloatRange(kE3M2);
    case DType::kU8:
      return {.digits = 8, .lowest = 0, .highest = 7, .integer = true, .negative = false};
    case DType::kI8:
      return {.digits = 7, .lowest = 0, .highest = 6, .integer = true, .negative = true};
    case DType::kF8E5M2:
      return FloatRange(kE5M2);
    case DType::kF8E4M3:
      return FloatRange(kE4M3);
    case DType::kF8E8M0:
      return FloatRange(kE8M0);
    case DType::kF8E4M3Fnuz:
      return FloatRange(kE4M3Fnuz);
    case DType::kF8E5M2Fnuz:
      return FloatRange(kE5M2Fnuz);
    case DType::kI16:
      return {.digits = 15, .lowest = 0, .highest = 14, .integer = true, .negative = true};
    case DType::kU16:
      return {.digits = 16, .lowest = 0, .highest = 15, .integer = true, .negative = false};
    case DType::kF16:
      return FloatRange(kHalf);
    case DType::kBF16:
      return FloatRange(kBrain);
    case DType::kI32:
      return {.digits = 31, .lowest = 0, .highest = 30, .integer = true, .negative = true};
    case DType::kU32:
      return {.digits = 32, .lowest = 0, .highest = 31, .integer = true, .negative = false};
    case DType::kF32:
      return FloatRange(kSingle);
    case DType::kC64:
      break;
    case DType::kF64:
      return {.digits = 53,
              .lowest = -1074,
              .highest = 1023,
              .integer = false,
              .negative = true,
              .negative_zero = true,
              .infinity = true,
              .nan = true};
    case DType::kI64:
      return {.digits = 63, .lowest = 0, .highest = 62, .integer = true, .negative = true};
    case DType::kU64:
      return {.digits = 64, .lowest = 0, .highest = 63, .integer = true, .negative = false};
  }
  CheckFailed(__FILE__, __LINE__, "dtype != kC64", "complex numbers have no range");
}

}  // namespace

absl::Span<const DType> AllDTypes() {
  static constexpr std::array<DType, kDTypeCount> kAll = [] {
    std::array<DType, kDTypeCount> all{};
    for (int i = 0; i < kDTypeCount; ++i) all[i] = kTypes[i].dtype;
    return all;
  }();
  return kAll;
}

absl::string_view SafetensorsName(DType dtype) { return Info(dtype).safetensors; }
absl::string_view Name(DType dtype) { return Info(dtype).name; }

std::optional<DType> DTypeFromSafetensors(absl::string_view name) {
  for (const TypeInfo& info : kTypes) {
    if (info.safetensors == name) return info.dtype;
  }
  return std::nullopt;
}

std::optional<DType> DTypeFromName(absl::string_view name) {
  for (const TypeInfo& info : kTypes) {
    if (info.name == name) return info.dtype;
  }
  return std::nullopt;
}

int64_t BitWidth(DType dtype) { return Info(dtype).bits; }
int64_t ElementBytes(DType dtype) { return (Info(dtype).bits + 7) / 8; }

std::optional<int64_t> FileBytes(DType dtype, int64_t count) {
  int64_t bits = 0;
  if (count < 0) return std::nullopt;
  // Whole bytes first: 2^60 elements of one byte are no overflow.
  const int64_t width = BitWidth(dtype);
  if (width % 8 == 0) {
    if (__builtin_mul_overflow(count, width / 8, &bits)) return std::nullopt;
    return bits;
  }
  if (__builtin_mul_overflow(count, width, &bits) || bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

bool IsFloat(DType dtype) { return dtype != DType::kBool && dtype != DType::kC64 && !IsInteger(dtype); }

bool IsInteger(DType dtype) {
  switch (dtype) {
    case DType::kU8:
    case DType::kI8:
    case DType::kI16:
    case DType::kU16:
    case DType::kI32:
    case DType::kU32:
    case DType::kI64:
    case DType::kU64:
      return true;
    case DType::kBool:
    case DType::kF4:
    case DType::kF6E2M3:
    case DType::kF6E3M2:
    case DType::kF8E5M2:
    case DType::kF8E4M3:
    case DType::kF8E8M0:
    case DType::kF8E4M3Fnuz:
    case DType::kF8E5M2Fnuz:
    case DType::kF16:
    case DType::kBF16:
    case DType::kF32:
    case DType::kC64:
    case DType::kF64:
      return false;
  }
  return false;
}

bool IsLossless(DType from, DType to) {
  if (from == to) return true;
  if (from == DType::kC64 || to == DType::kC64) return false;
  const Range a = RangeOf(from);
  const Range b = RangeOf(to);
  // An I8 holds -128 = -2^7, one power of two further than its positive numbers.
  const bool signed_integer = a.integer && a.negative;
  const int reach = signed_integer && !b.integer ? a.highest + 1 : a.highest;
  return a.digits <= b.digits && a.lowest >= b.lowest && reach <= b.highest && (!a.negative || b.negative) &&
         (!a.zero || b.zero) && (!a.negative_zero || b.negative_zero) && (!a.infinity || b.infinity) &&
         (!a.nan || b.nan);
}

}  // namespace twinforge
