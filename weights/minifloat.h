// The rounding of small floating formats, written once and instantiated for each.
//
// A format is four numbers; everything else follows. Codes are sign, exponent, mantissa
// from the highest bit down, kept in the low bits of an integer:
//
//   E4M3   s eeee mmm     bias 7    no infinity, NaN is s 1111 111, largest 448
//   E2M1   s ee m         bias 1    neither infinity nor NaN, largest 6
//   E8M0   eeeeeeee       bias 127  no sign, no zero, NaN is 11111111
//
// NaN payloads travel as far as they fit, aligned at the top, so that widening and
// narrowing again gives back the very bits: simplify.h drops such casts on that promise.
#ifndef TWINFORGE_WEIGHTS_MINIFLOAT_H_
#define TWINFORGE_WEIGHTS_MINIFLOAT_H_

#include <array>
#include <bit>
#include <cstdint>

namespace twinforge {

enum class Specials : uint8_t {
  kIeee,          // infinity and NaNs, as in IEEE 754
  kNanOnly,       // OCP E4M3: all ones is NaN, the other codes of that exponent are numbers
  kNegativeZero,  // fnuz: the code of -0 is the only NaN
  kNone,          // MX 4- and 6-bit: every code is a number
  kScaleOnly,     // E8M0: an exponent, or NaN
};

struct Minifloat {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  Specials specials;
  bool operator==(const Minifloat&) const = default;
};

inline constexpr Minifloat kE2M1 = {2, 1, 1, Specials::kNone};
inline constexpr Minifloat kE2M3 = {2, 3, 1, Specials::kNone};
inline constexpr Minifloat kE3M2 = {3, 2, 3, Specials::kNone};
inline constexpr Minifloat kE5M2 = {5, 2, 15, Specials::kIeee};
inline constexpr Minifloat kE4M3 = {4, 3, 7, Specials::kNanOnly};
inline constexpr Minifloat kE8M0 = {8, 0, 127, Specials::kScaleOnly};
inline constexpr Minifloat kE4M3Fnuz = {4, 3, 8, Specials::kNegativeZero};
inline constexpr Minifloat kE5M2Fnuz = {5, 2, 16, Specials::kNegativeZero};
inline constexpr Minifloat kHalf = {5, 10, 15, Specials::kIeee};
inline constexpr Minifloat kBrain = {8, 7, 127, Specials::kIeee};
inline constexpr Minifloat kSingle = {8, 23, 127, Specials::kIeee};

// Where the two formats from which we round keep their fields.
struct Binary64 {
  using Bits = uint64_t;
  static constexpr int kMantissaBits = 52;
  static constexpr int kBias = 1023;
};
struct Binary32 {
  using Bits = uint32_t;
  static constexpr int kMantissaBits = 23;
  static constexpr int kBias = 127;
};

// 2^exponent, exactly; for normal doubles.
constexpr double PowerOfTwo(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

// The number that `code` stands for.
constexpr double DecodeMinifloat(Minifloat f, uint32_t code) {
  const int m = f.mantissa_bits;
  if (f.specials == Specials::kScaleOnly) {
    return code == 0xff ? std::bit_cast<double>(uint64_t{0x7ff8} << 48)
                        : PowerOfTwo(static_cast<int>(code) - f.bias);
  }
  const uint32_t all_exponent = (1u << f.exponent_bits) - 1;
  const uint32_t exponent = code >> m & all_exponent;
  const uint64_t mantissa = code & ((1u << m) - 1);
  const uint64_t sign = static_cast<uint64_t>(code >> (m + f.exponent_bits) & 1) << 63;
  if (f.specials == Specials::kIeee && exponent == all_exponent) {
    return std::bit_cast<double>(sign | uint64_t{0x7ff} << 52 | mantissa << (52 - m));
  }
  if (f.specials == Specials::kNanOnly && exponent == all_exponent && mantissa == (1u << m) - 1) {
    return std::bit_cast<double>(sign | uint64_t{0x7ff8} << 48);
  }
  if (f.specials == Specials::kNegativeZero && sign != 0 && exponent == 0 && mantissa == 0) {
    return std::bit_cast<double>(uint64_t{0x7ff8} << 48);
  }
  const double magnitude = exponent == 0 ? static_cast<double>(mantissa) * PowerOfTwo(1 - f.bias - m)
                                         : static_cast<double>(mantissa + (1u << m)) *
                                               PowerOfTwo(static_cast<int>(exponent) - f.bias - m);
  return sign != 0 ? -magnitude : magnitude;
}

// What stands for a magnitude too large to be a number.
constexpr uint32_t OverflowCode(Minifloat f) {
  const int m = f.mantissa_bits;
  const uint32_t ones = (1u << (m + f.exponent_bits)) - 1;
  switch (f.specials) {
    case Specials::kIeee:
      return ones - ((1u << m) - 1);
    case Specials::kNanOnly:
      return ones;
    case Specials::kNegativeZero:
      return ones + 1;
    case Specials::kNone:
      return ones;
    case Specials::kScaleOnly:
      return ones;
  }
  return 0;
}

// The largest code, sign aside, that is a finite number.
constexpr uint32_t LargestCode(Minifloat f) {
  const uint32_t ones = (1u << (f.mantissa_bits + f.exponent_bits)) - 1;
  switch (f.specials) {
    case Specials::kIeee:
      return OverflowCode(f) - 1;
    case Specials::kNanOnly:
      return ones - 1;
    case Specials::kNegativeZero:
      return ones;
    case Specials::kNone:
      return ones;
    case Specials::kScaleOnly:
      return ones - 1;
  }
  return 0;
}

// NaN, with as much of its payload as there is room for: the upper bits, `kept`.
constexpr uint32_t NanCode(Minifloat f, uint32_t sign, uint32_t kept) {
  const int m = f.mantissa_bits;
  const uint32_t placed_sign = sign << (m + f.exponent_bits);
  switch (f.specials) {
    case Specials::kIeee:
      return placed_sign | OverflowCode(f) | (kept != 0 ? kept : 1u << (m - 1));
    case Specials::kNanOnly:
      return placed_sign | OverflowCode(f);
    case Specials::kNegativeZero:
      return OverflowCode(f);
    case Specials::kNone:
      return 0;  // the type has no NaN
    case Specials::kScaleOnly:
      return OverflowCode(f);
  }
  return 0;
}

// Adds the sign, which fnuz formats have no room for at zero and E8M0 has nowhere.
template <Minifloat kFormat>
constexpr uint32_t WithSign(uint32_t magnitude, uint32_t sign) {
  constexpr int kSignShift = kFormat.mantissa_bits + kFormat.exponent_bits;
  if constexpr (kFormat.specials == Specials::kNegativeZero) {
    const bool has_sign = magnitude != 0 && magnitude <= LargestCode(kFormat);
    return magnitude | (has_sign ? sign : 0u) << kSignShift;
  } else {
    return magnitude | sign << kSignShift;
  }
}

// The code nearest to the number whose bits are `bits`; ties to the even code.
template <Minifloat kFormat, typename Wide>
constexpr uint32_t EncodeMinifloat(typename Wide::Bits bits) {
  using Bits = typename Wide::Bits;
  constexpr int kWide = Wide::kMantissaBits;
  constexpr int kTotal = static_cast<int>(sizeof(Bits)) * 8;
  constexpr int m = kFormat.mantissa_bits;
  constexpr bool kScale = kFormat.specials == Specials::kScaleOnly;
  constexpr int kLowest = kScale ? -kFormat.bias : 1 - kFormat.bias;  // exponent of the smallest normal
  constexpr Bits kInfinity = ((Bits{1} << (kTotal - 1 - kWide)) - 1) << kWide;
  const uint32_t sign = static_cast<uint32_t>(bits >> (kTotal - 1));
  const Bits magnitude = bits & ~(Bits{1} << (kTotal - 1));
  const Bits fraction = magnitude & ((Bits{1} << kWide) - 1);
  if (magnitude > kInfinity) return NanCode(kFormat, sign, static_cast<uint32_t>(fraction >> (kWide - m)));
  if constexpr (kScale) {
    if (sign != 0 || magnitude == 0) return OverflowCode(kFormat);
  }
  Bits mantissa = fraction;
  int exponent = 1 - Wide::kBias;  // a subnormal's, unless a hidden bit says more
  if (magnitude >> kWide != 0) {
    mantissa |= Bits{1} << kWide;
    exponent = static_cast<int>(magnitude >> kWide) - Wide::kBias;
  } else if constexpr (kScale) {
    // E8M0 reaches into the subnormals of the wide format and has none of its own.
    if (mantissa == 0) return 0;
    const int up = std::countl_zero(mantissa) - (kTotal - 1 - kWide);
    mantissa <<= up;
    exponent -= up;
  }
  if (kScale && exponent < kLowest) return 0;
  const int drop = kWide - m + (exponent < kLowest ? kLowest - exponent : 0);
  uint32_t code = 0;
  if (drop <= kWide + 1) {
    const Bits half = Bits{1} << (drop - 1);
    const Bits kept = mantissa >> drop;
    const Bits rest = mantissa & ((half << 1) - 1);
    const bool up = rest > half || (rest == half && (kept & 1) != 0);
    code = static_cast<uint32_t>(kept) + (up ? 1u : 0u);
    // Numbers carry a hidden 1 << m that counts as one step of the exponent field.
    if (exponent > kLowest) code += static_cast<uint32_t>(exponent - kLowest) << m;
    if constexpr (kScale) code -= 1;  // its exponent field begins at 0, not at 1
  }
  if (code > LargestCode(kFormat)) code = OverflowCode(kFormat);
  return WithSign<kFormat>(code, sign);
}

// `yes` or `no` without a branch. A conditional expression would be turned into one where
// an arm holds float arithmetic, which the compiler may not evaluate in vain.
inline uint32_t Select(bool condition, uint32_t yes, uint32_t no) {
  return no ^ ((yes ^ no) & (0u - static_cast<uint32_t>(condition)));
}

// The same for a float and no branch, so that a loop over it is vectorised: numbers are
// rebiased and rounded as integers, subnormals are rounded by an addition in float
// arithmetic whose unit in the last place is the format's smallest step.
template <Minifloat kFormat>
inline uint32_t EncodeFloatBranchless(uint32_t bits) {
  constexpr int m = kFormat.mantissa_bits;
  constexpr int kDrop = 23 - m;
  constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(1 - kFormat.bias + 127) << 23;
  constexpr uint32_t kMagic = static_cast<uint32_t>(1 - kFormat.bias + 127 + kDrop) << 23;
  constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kFormat.bias) << 23;
  const uint32_t sign = bits >> 31;
  const uint32_t magnitude = bits & 0x7fffffffu;
  const float lifted = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kMagic);
  const uint32_t subnormal = std::bit_cast<uint32_t>(lifted) - kMagic;
  const uint32_t odd = magnitude >> kDrop & 1;
  const uint32_t normal = (magnitude - kRebias + ((1u << (kDrop - 1)) - 1) + odd) >> kDrop;
  uint32_t code = Select(magnitude < kSmallestNormal, subnormal, normal);
  code = Select(code > LargestCode(kFormat), OverflowCode(kFormat), code);
  code = WithSign<kFormat>(code, sign);
  const uint32_t nan = NanCode(kFormat, sign, (magnitude & 0x7fffffu) >> kDrop);
  return Select(magnitude > 0x7f800000u, nan, code);
}

}  // namespace twinforge

#endif  // TWINFORGE_WEIGHTS_MINIFLOAT_H_
