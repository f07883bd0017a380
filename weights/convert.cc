// Exact conversion between element types: one element through double, arrays in blocks.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "weights/dtype.h"
#include "weights/minifloat.h"

namespace twinforge {
namespace {

// How many elements a conversion holds between two formats at a time: 4 KiB of doubles.
constexpr int64_t kBlock = 512;

template <typename T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

template <typename T>
void Store(T value, std::byte* at) {
  std::memcpy(at, &value, sizeof(T));
}

// A float as a double, payload of a NaN kept (the hardware would quiet it).
double Widen(uint32_t bits) {
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return std::bit_cast<double>(static_cast<uint64_t>(bits >> 31) << 63 | uint64_t{0x7ff} << 52 |
                                 static_cast<uint64_t>(bits & 0x7fffffu) << 29);
  }
  return static_cast<double>(std::bit_cast<float>(bits));
}

uint32_t Narrow(double value) {
  if (value != value) return EncodeMinifloat<kSingle, Binary64>(std::bit_cast<uint64_t>(value));
  return std::bit_cast<uint32_t>(static_cast<float>(value));
}

// The integer nearest to `value`, ties to even, saturating; NaN becomes 0.
template <typename T>
T RoundToInteger(double value) {
  if (value != value) return 0;
  // The bounds are compared as powers of two, which doubles hold exactly.
  constexpr double kPastEnd = PowerOfTwo(std::numeric_limits<T>::digits);
  const double rounded = std::nearbyint(value);
  if (rounded >= kPastEnd) return std::numeric_limits<T>::max();
  if (rounded <= (std::is_signed_v<T> ? -kPastEnd : 0.0)) return std::numeric_limits<T>::min();
  return static_cast<T>(rounded);
}

template <Minifloat kFormat>
struct DecodeTable {
  static constexpr std::array<double, 256> kDouble = [] {
    std::array<double, 256> table{};
    constexpr uint32_t kMask = kFormat.specials == Specials::kScaleOnly
                                   ? 0xff
                                   : (1u << (1 + kFormat.exponent_bits + kFormat.mantissa_bits)) - 1;
    for (uint32_t code = 0; code < 256; ++code) table[code] = DecodeMinifloat(kFormat, code & kMask);
    return table;
  }();
};

// ---- calls `f` with a tag that says how one type is stored

template <Minifloat kFormat>
struct ByteFloat {
  static double Get(const std::byte* at) { return DecodeTable<kFormat>::kDouble[std::to_integer<int>(*at)]; }
  static void Put(double value, std::byte* at) {
    *at = static_cast<std::byte>(EncodeMinifloat<kFormat, Binary64>(std::bit_cast<uint64_t>(value)));
  }
  static void PutFloat(uint32_t bits, std::byte* at) {
    if constexpr (kFormat == kE8M0) {
      *at = static_cast<std::byte>(EncodeMinifloat<kFormat, Binary32>(bits));
    } else {
      *at = static_cast<std::byte>(EncodeFloatBranchless<kFormat>(bits));
    }
  }
  static constexpr int kBytes = 1;
};

struct HalfFloat {
  static double Get(const std::byte* at) { return DecodeMinifloat(kHalf, Load<uint16_t>(at)); }
  static void Put(double value, std::byte* at) {
    Store(static_cast<uint16_t>(EncodeMinifloat<kHalf, Binary64>(std::bit_cast<uint64_t>(value))), at);
  }
  static void PutFloat(uint32_t bits, std::byte* at) {
    Store(static_cast<uint16_t>(EncodeFloatBranchless<kHalf>(bits)), at);
  }
  static constexpr int kBytes = 2;
};

struct BrainFloat {
  static double Get(const std::byte* at) { return Widen(static_cast<uint32_t>(Load<uint16_t>(at)) << 16); }
  static void Put(double value, std::byte* at) {
    Store(static_cast<uint16_t>(EncodeMinifloat<kBrain, Binary64>(std::bit_cast<uint64_t>(value))), at);
  }
  // A bf16 is the upper half of a float: subnormals need no care of their own.
  static void PutFloat(uint32_t bits, std::byte* at) {
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    const uint32_t payload = bits >> 16 & 0x7f;
    const uint32_t nan = bits >> 16 | (payload == 0 ? 0x40u : 0u);
    Store(static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded), at);
  }
  static constexpr int kBytes = 2;
};

struct SingleFloat {
  static double Get(const std::byte* at) { return Widen(Load<uint32_t>(at)); }
  static void Put(double value, std::byte* at) { Store(Narrow(value), at); }
  static void PutFloat(uint32_t bits, std::byte* at) { Store(bits, at); }
  static constexpr int kBytes = 4;
};

struct DoubleFloat {
  static double Get(const std::byte* at) { return Load<double>(at); }
  static void Put(double value, std::byte* at) { Store(value, at); }
  static void PutFloat(uint32_t bits, std::byte* at) { Store(Widen(bits), at); }
  static constexpr int kBytes = 8;
};

template <typename T>
struct Integer {
  static double Get(const std::byte* at) { return static_cast<double>(Load<T>(at)); }
  static void Put(double value, std::byte* at) { Store(RoundToInteger<T>(value), at); }
  static void PutFloat(uint32_t bits, std::byte* at) { Put(Widen(bits), at); }
  static constexpr int kBytes = sizeof(T);
};

struct Boolean {
  static double Get(const std::byte* at) { return *at != std::byte{0} ? 1 : 0; }
  static void Put(double value, std::byte* at) { *at = static_cast<std::byte>(value != 0 ? 1 : 0); }
  static void PutFloat(uint32_t bits, std::byte* at) { Put(Widen(bits), at); }
  static constexpr int kBytes = 1;
};

template <typename F>
auto WithStorage(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kBool:
      return f(Boolean());
    case DType::kF4:
      return f(ByteFloat<kE2M1>());
    case DType::kF6E2M3:
      return f(ByteFloat<kE2M3>());
    case DType::kF6E3M2:
      return f(ByteFloat<kE3M2>());
    case DType::kU8:
      return f(Integer<uint8_t>());
    case DType::kI8:
      return f(Integer<int8_t>());
    case DType::kF8E5M2:
      return f(ByteFloat<kE5M2>());
    case DType::kF8E4M3:
      return f(ByteFloat<kE4M3>());
    case DType::kF8E8M0:
      return f(ByteFloat<kE8M0>());
    case DType::kF8E4M3Fnuz:
      return f(ByteFloat<kE4M3Fnuz>());
    case DType::kF8E5M2Fnuz:
      return f(ByteFloat<kE5M2Fnuz>());
    case DType::kI16:
      return f(Integer<int16_t>());
    case DType::kU16:
      return f(Integer<uint16_t>());
    case DType::kF16:
      return f(HalfFloat());
    case DType::kBF16:
      return f(BrainFloat());
    case DType::kI32:
      return f(Integer<int32_t>());
    case DType::kU32:
      return f(Integer<uint32_t>());
    case DType::kF32:
      return f(SingleFloat());
    case DType::kC64:
      break;
    case DType::kF64:
      return f(DoubleFloat());
    case DType::kI64:
      return f(Integer<int64_t>());
    case DType::kU64:
      return f(Integer<uint64_t>());
  }
  CheckFailed(__FILE__, __LINE__, "dtype != kC64", "complex numbers are moved, never computed with");
}

// ---- whole arrays

// Types all of whose values are floats: they convert through float, which is twice as
// fast as double and rounds no differently.
bool FitsFloat(DType dtype) { return dtype == DType::kF32 || BitWidth(dtype) <= 16; }

void DecodeFloats(DType from, const std::byte* in, uint32_t* out, int64_t count) {
  if (from == DType::kBF16) {
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<uint32_t>(Load<uint16_t>(in + 2 * i)) << 16;
    return;
  }
  if (from == DType::kF32) {
    std::memcpy(out, in, count * 4);
    return;
  }
  if (from == DType::kF16) {
    // Rebias the exponent; subnormals are counts of the smallest step, 2^-24.
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t half = Load<uint16_t>(in + 2 * i);
      const uint32_t magnitude = half & 0x7fffu;
      const uint32_t step = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) *
                                                    std::bit_cast<float>(uint32_t{127 - 24} << 23));
      uint32_t bits = (magnitude << 13) + (uint32_t{127 - 15} << 23);
      bits = Select(magnitude >= 0x7c00u, magnitude << 13 | 0x7f800000u, bits);
      bits = Select(magnitude < 0x400u, step, bits);
      out[i] = bits | (half & 0x8000u) << 16;
    }
    return;
  }
  WithStorage(from, [&](auto storage) {
    for (int64_t i = 0; i < count; ++i) out[i] = Narrow(storage.Get(in + i * storage.kBytes));
  });
}

void ConvertThroughFloat(DType from, const std::byte* in, DType to, std::byte* out, int64_t count) {
  uint32_t block[kBlock];
  const int64_t from_bytes = ElementBytes(from);
  WithStorage(to, [&](auto storage) {
    for (int64_t done = 0; done < count; done += kBlock) {
      const int64_t n = std::min(kBlock, count - done);
      DecodeFloats(from, in + done * from_bytes, block, n);
      std::byte* place = out + done * storage.kBytes;
      for (int64_t i = 0; i < n; ++i) storage.PutFloat(block[i], place + i * storage.kBytes);
    }
  });
}

// The double nearest to `value` in the direction that leaves a later rounding right:
// truncated, with the last bit set where anything was cut off (rounding to odd).
double RoundToOdd(bool negative, uint64_t magnitude) {
  const int excess = 64 - std::countl_zero(magnitude) - 53;
  if (excess > 0) {
    const bool inexact = (magnitude & ((uint64_t{1} << excess) - 1)) != 0;
    magnitude = (magnitude >> excess | (inexact ? 1 : 0)) << excess;
  }
  const double value = static_cast<double>(magnitude);
  return negative ? -value : value;
}

void DecodeDoubles(DType from, DType to, const std::byte* in, double* out, int64_t count) {
  // Towards f64 the first rounding is the last; towards anything narrower it must not be one.
  const bool odd = to != DType::kF64;
  if (from == DType::kI64 && odd) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t value = Load<int64_t>(in + 8 * i);
      const uint64_t bits = static_cast<uint64_t>(value);
      out[i] = RoundToOdd(value < 0, value < 0 ? 0 - bits : bits);
    }
  } else if (from == DType::kU64 && odd) {
    for (int64_t i = 0; i < count; ++i) out[i] = RoundToOdd(false, Load<uint64_t>(in + 8 * i));
  } else {
    WithStorage(from, [&](auto storage) {
      for (int64_t i = 0; i < count; ++i) out[i] = storage.Get(in + i * storage.kBytes);
    });
  }
}

void ConvertThroughDouble(DType from, const std::byte* in, DType to, std::byte* out, int64_t count) {
  double block[kBlock];
  const int64_t from_bytes = ElementBytes(from);
  WithStorage(to, [&](auto storage) {
    for (int64_t done = 0; done < count; done += kBlock) {
      const int64_t n = std::min(kBlock, count - done);
      DecodeDoubles(from, to, in + done * from_bytes, block, n);
      std::byte* place = out + done * storage.kBytes;
      for (int64_t i = 0; i < n; ++i) storage.Put(block[i], place + i * storage.kBytes);
    }
  });
}

// Integers to integers never pass through a floating type: 64 bits would not survive.
template <typename F>
void WithInteger(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kI8:
      return f(int8_t{});
    case DType::kU8:
      return f(uint8_t{});
    case DType::kI16:
      return f(int16_t{});
    case DType::kU16:
      return f(uint16_t{});
    case DType::kI32:
      return f(int32_t{});
    case DType::kU32:
      return f(uint32_t{});
    case DType::kI64:
      return f(int64_t{});
    case DType::kU64:
      return f(uint64_t{});
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
      break;
  }
  CheckFailed(__FILE__, __LINE__, "IsInteger(dtype)", "not an integer type");
}

void ConvertIntegers(DType from, const std::byte* in, DType to, std::byte* out, int64_t count) {
  WithInteger(from, [&](auto source) {
    using From = decltype(source);
    WithInteger(to, [&](auto target) {
      using To = decltype(target);
      using Limits = std::numeric_limits<To>;
      for (int64_t i = 0; i < count; ++i) {
        const From value = Load<From>(in + i * sizeof(From));
        To result = static_cast<To>(value);
        if (std::cmp_less(value, Limits::min())) result = Limits::min();
        if (std::cmp_greater(value, Limits::max())) result = Limits::max();
        Store(result, out + i * sizeof(To));
      }
    });
  });
}

}  // namespace

double ToDouble(DType dtype, const std::byte* at) {
  return WithStorage(dtype, [&](auto storage) { return storage.Get(at); });
}

void FromDouble(DType dtype, double value, std::byte* at) {
  WithStorage(dtype, [&](auto storage) { storage.Put(value, at); });
}

void Convert(DType from, const std::byte* in, DType to, std::byte* out, int64_t count) {
  if (from == to) {
    std::memcpy(out, in, count * ElementBytes(from));
  } else if (IsInteger(from) && IsInteger(to)) {
    ConvertIntegers(from, in, to, out, count);
  } else if (FitsFloat(from)) {
    ConvertThroughFloat(from, in, to, out, count);
  } else {
    ConvertThroughDouble(from, in, to, out, count);
  }
}

}  // namespace twinforge
