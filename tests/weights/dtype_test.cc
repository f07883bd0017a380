// Element types against ml_dtypes (as digests), and against rounding by definition.
#include "weights/dtype.h"

#include <openssl/evp.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "weights/codec.h"

namespace twinforge {
namespace {

std::string Sha256(const void* data, size_t size) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  EVP_Digest(data, size, digest, &length, EVP_sha256(), nullptr);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<char*>(digest), length));
}

struct Expected {
  int64_t count = 0;
  std::string digest;
};

// "values f8_e4m3" -> what the judge says
std::map<std::string, Expected> Digests() {
  std::ifstream file(TWINFORGE_SOURCE_DIR "/tests/weights/dtype_digests.txt");
  std::map<std::string, Expected> digests;
  std::string direction, name;
  for (Expected row; file >> direction >> name >> row.count >> row.digest;)
    digests[direction + " " + name] = row;
  return digests;
}

const DType kSmallFloats[] = {DType::kF4,     DType::kF6E2M3, DType::kF6E3M2,     DType::kF8E5M2,
                              DType::kF8E4M3, DType::kF8E8M0, DType::kF8E4M3Fnuz, DType::kF8E5M2Fnuz,
                              DType::kF16,    DType::kBF16};

bool HasNan(DType dtype) { return dtype != DType::kF4 && dtype != DType::kF6E2M3 && dtype != DType::kF6E3M2; }

double Value(DType dtype, uint64_t code) {
  std::byte element[8];
  std::memcpy(element, &code, 8);
  return ToDouble(dtype, element);
}

uint64_t CodeOf(DType dtype, double value) {
  uint64_t code = 0;
  std::byte element[8] = {};
  FromDouble(dtype, value, element);
  std::memcpy(&code, element, 8);
  return code;
}

std::vector<double> AllValues(DType dtype) {
  std::vector<double> values;
  for (uint64_t code = 0; code < uint64_t{1} << BitWidth(dtype); ++code) values.push_back(Value(dtype, code));
  return values;
}

// make_dtype_digests.py's list, made with our decoding.
std::vector<uint32_t> FloatsToRound(DType dtype) {
  constexpr int kRandomFloats = 100000;
  std::vector<uint32_t> patterns;
  for (uint64_t i = 1; i <= 2 * kRandomFloats; ++i) {
    uint64_t z = i * 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    uint32_t bits = static_cast<uint32_t>((z ^ z >> 31) >> 32);
    if (i > kRandomFloats) bits = (bits & 0x807fffffu) | (107 + (bits >> 23 & 0xff) % 41) << 23;
    patterns.push_back(bits);
  }
  std::set<double> finite;
  for (double value : AllValues(dtype)) {
    if (std::isfinite(value)) finite.insert(value + 0.0);
  }
  const std::vector<double> values(finite.begin(), finite.end());
  std::vector<double> exact = values;
  for (size_t i = 0; i + 1 < values.size(); ++i) exact.push_back((values[i] + values[i + 1]) / 2);
  for (uint32_t moved : {0u, 1u, ~0u}) {
    for (double value : exact) patterns.push_back(std::bit_cast<uint32_t>(static_cast<float>(value)) + moved);
  }
  std::vector<uint32_t> kept;
  for (uint32_t bits : patterns) {
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    const bool subnormal = (bits & 0x7f800000u) == 0 && (bits & 0x7fffffffu) != 0;
    if (nan && !HasNan(dtype)) continue;
    if (subnormal && dtype == DType::kF8E8M0) continue;
    kept.push_back(bits);
  }
  return kept;
}

TEST(DType, EveryCodeHasTheValueThatMlDtypesSays) {
  const std::map<std::string, Expected> digests = Digests();
  for (DType dtype : kSmallFloats) {
    const Expected& expected = digests.at(absl::StrCat("values ", Name(dtype)));
    std::vector<double> values = AllValues(dtype);
    ASSERT_EQ(static_cast<int64_t>(values.size()), expected.count);
    for (double& value : values) {
      if (value != value) value = std::bit_cast<double>(uint64_t{0x7ff8} << 48);
    }
    EXPECT_EQ(Sha256(values.data(), values.size() * 8), expected.digest) << Name(dtype);
  }
}

TEST(DType, FloatsRoundAsMlDtypesRounds) {
  const std::map<std::string, Expected> digests = Digests();
  for (DType dtype : kSmallFloats) {
    const Expected& expected = digests.at(absl::StrCat("rounds ", Name(dtype)));
    const std::vector<uint32_t> floats = FloatsToRound(dtype);
    ASSERT_EQ(static_cast<int64_t>(floats.size()), expected.count) << Name(dtype);
    const int64_t bytes = ElementBytes(dtype);
    std::vector<std::byte> codes(floats.size() * bytes);
    Convert(DType::kF32, reinterpret_cast<const std::byte*>(floats.data()), dtype, codes.data(),
            floats.size());
    // The same through double, one by one: the two implementations agree, NaN payloads included.
    for (size_t i = 0; i < floats.size(); ++i) {
      std::byte single[8] = {};
      const double value = ToDouble(DType::kF32, reinterpret_cast<const std::byte*>(&floats[i]));
      FromDouble(dtype, value, single);
      ASSERT_EQ(std::memcmp(single, &codes[i * bytes], bytes), 0) << Name(dtype) << " of " << value;
      if (HasNan(dtype) && std::isnan(ToDouble(dtype, single))) std::memset(&codes[i * bytes], 0xff, bytes);
    }
    EXPECT_EQ(Sha256(codes.data(), codes.size()), expected.digest) << Name(dtype);
  }
}

TEST(DType, DoublesRoundOnceToTheNearest) {
  // By definition: no other value of the type is nearer, and of two equally near the even
  // code is taken. Doubles a hair beside a tie tell this from rounding through float.
  std::mt19937_64 random(3);
  for (DType dtype : kSmallFloats) {
    if (dtype == DType::kF8E8M0) continue;
    std::map<double, uint64_t> codes;  // nonnegative finite values
    for (uint64_t code = 0; code < uint64_t{1} << (BitWidth(dtype) - 1); ++code) {
      const double value = Value(dtype, code);
      if (std::isfinite(value)) codes[value] = code;
    }
    for (auto at = codes.begin(); std::next(at) != codes.end(); ++at) {
      const auto [low, low_code] = *at;
      const auto [high, high_code] = *std::next(at);
      const double middle = (low + high) / 2;
      const uint64_t even = low_code % 2 == 0 ? low_code : high_code;
      ASSERT_EQ(CodeOf(dtype, middle), even) << Name(dtype) << " " << middle;
      ASSERT_EQ(CodeOf(dtype, std::nextafter(middle, 0)), low_code) << Name(dtype) << " " << middle;
      ASSERT_EQ(CodeOf(dtype, std::nextafter(middle, 1e300)), high_code) << Name(dtype) << " " << middle;
      const double between = std::uniform_real_distribution<double>(low, high)(random);
      ASSERT_EQ(CodeOf(dtype, between), between < middle ? low_code : high_code);
      const uint64_t sign = uint64_t{1} << (BitWidth(dtype) - 1);
      ASSERT_EQ(CodeOf(dtype, -high), sign | high_code);
    }
  }
}

TEST(DType, OverflowIsWhatTheHeaderSays) {
  EXPECT_EQ(Value(DType::kF16, CodeOf(DType::kF16, 65519)), 65504);
  EXPECT_TRUE(std::isinf(Value(DType::kF16, CodeOf(DType::kF16, 65520))));
  EXPECT_EQ(Value(DType::kF8E5M2, CodeOf(DType::kF8E5M2, -1e9)), -INFINITY);
  EXPECT_TRUE(std::isnan(Value(DType::kF8E4M3, CodeOf(DType::kF8E4M3, 465))));
  EXPECT_EQ(Value(DType::kF8E4M3, CodeOf(DType::kF8E4M3, 464)), 448);
  EXPECT_TRUE(std::isnan(Value(DType::kF8E4M3Fnuz, CodeOf(DType::kF8E4M3Fnuz, INFINITY))));
  EXPECT_EQ(Value(DType::kF4, CodeOf(DType::kF4, INFINITY)), 6);
  EXPECT_EQ(Value(DType::kF4, CodeOf(DType::kF4, -7)), -6);
  EXPECT_EQ(Value(DType::kF6E2M3, CodeOf(DType::kF6E2M3, 100)), 7.5);
  EXPECT_TRUE(std::isnan(Value(DType::kF8E8M0, CodeOf(DType::kF8E8M0, 0))));
  EXPECT_TRUE(std::isnan(Value(DType::kF8E8M0, CodeOf(DType::kF8E8M0, -1))));
  EXPECT_EQ(CodeOf(DType::kF8E8M0, 1e-300), 0u);
  EXPECT_EQ(CodeOf(DType::kF8E8M0, std::ldexp(1.49, -127)), 0u);
  EXPECT_EQ(CodeOf(DType::kF8E8M0, std::ldexp(1.5, -127)), 1u);
  EXPECT_EQ(CodeOf(DType::kF8E4M3Fnuz, -0.0), 0u);
  EXPECT_EQ(CodeOf(DType::kI8, 127.5), 127u);
  EXPECT_EQ(CodeOf(DType::kI8, -1000), 0x80u);
  EXPECT_EQ(CodeOf(DType::kU8, -1), 0u);
  EXPECT_EQ(CodeOf(DType::kU8, 2.5), 2u);
  EXPECT_EQ(CodeOf(DType::kI32, NAN), 0u);
  EXPECT_EQ(CodeOf(DType::kI64, 1e19), static_cast<uint64_t>(INT64_MAX));
  EXPECT_EQ(CodeOf(DType::kU64, 1e20), UINT64_MAX);
  EXPECT_EQ(CodeOf(DType::kBool, -0.0), 0u);
  EXPECT_EQ(CodeOf(DType::kBool, 0.5), 1u);
}

template <typename From, typename To>
To Converted(DType from, From value, DType to) {
  To result;
  Convert(from, reinterpret_cast<const std::byte*>(&value), to, reinterpret_cast<std::byte*>(&result), 1);
  return result;
}

TEST(DType, WideIntegersKeepEveryBit) {
  EXPECT_EQ((Converted<int64_t, uint64_t>(DType::kI64, INT64_MAX, DType::kU64)), uint64_t{INT64_MAX});
  EXPECT_EQ((Converted<int64_t, uint64_t>(DType::kI64, -1, DType::kU64)), 0u);
  EXPECT_EQ((Converted<uint64_t, int64_t>(DType::kU64, UINT64_MAX, DType::kI64)), INT64_MAX);
  EXPECT_EQ((Converted<int64_t, int8_t>(DType::kI64, -129, DType::kI8)), -128);
  EXPECT_EQ((Converted<uint8_t, int8_t>(DType::kU8, 200, DType::kI8)), 127);
  EXPECT_EQ((Converted<int64_t, float>(DType::kI64, (int64_t{1} << 60) + 1, DType::kF32)),
            std::ldexp(1.0f, 60));
  // 2^54 + 2^30 + 1 is above the tie of floats; through double it would be on it.
  const int64_t beside_tie = (int64_t{1} << 54) + (int64_t{1} << 30) + 1;
  EXPECT_EQ((Converted<int64_t, float>(DType::kI64, beside_tie, DType::kF32)),
            std::ldexp(1.0f, 54) + std::ldexp(1.0f, 31));
  EXPECT_EQ((Converted<int64_t, float>(DType::kI64, -beside_tie, DType::kF32)),
            -std::ldexp(1.0f, 54) - std::ldexp(1.0f, 31));
}

// Elements with every kind of bits, NaN payloads included.
std::vector<std::byte> RandomElements(DType dtype, int64_t count) {
  std::mt19937_64 random(11);
  std::vector<std::byte> elements(count * ElementBytes(dtype));
  for (std::byte& byte : elements)
    byte = static_cast<std::byte>(random() & (BitWidth(dtype) < 8 ? (1 << BitWidth(dtype)) - 1 : 255));
  if (dtype == DType::kBool) {
    for (std::byte& byte : elements) byte &= std::byte{1};
  }
  // Random bits are rarely special: every fourth element of a float type is made so.
  for (int64_t i = 0; i < count && IsFloat(dtype); i += 4) {
    const double special[] = {
        0.0, -0.0, 1, INFINITY, -INFINITY, NAN, std::ldexp(1, -126), std::ldexp(1, 127)};
    FromDouble(dtype, special[i / 4 % 8], &elements[i * ElementBytes(dtype)]);
  }
  return elements;
}

TEST(DType, LosslessCastsGiveTheBitsBack) {
  constexpr int64_t kCount = 4099;  // not a multiple of any block
  for (DType from : AllDTypes()) {
    if (from == DType::kC64) continue;
    const std::vector<std::byte> elements = RandomElements(from, kCount);
    for (DType to : AllDTypes()) {
      if (to == DType::kC64) continue;
      std::vector<std::byte> there(kCount * ElementBytes(to));
      std::vector<std::byte> back(elements.size());
      Convert(from, elements.data(), to, there.data(), kCount);
      Convert(to, there.data(), from, back.data(), kCount);
      if (IsLossless(from, to)) {
        EXPECT_EQ(back, elements) << Name(from) << " through " << Name(to);
      }
    }
  }
}

TEST(DType, LosslessIsExactlyWhatHoldsEveryValue) {
  for (DType from : AllDTypes()) {
    if (BitWidth(from) > 16) continue;
    const int64_t codes = from == DType::kBool ? 2 : int64_t{1} << BitWidth(from);
    const int64_t bytes = ElementBytes(from);
    std::vector<std::byte> elements(codes * bytes);
    for (int64_t code = 0; code < codes; ++code) std::memcpy(&elements[code * bytes], &code, bytes);
    for (DType to : AllDTypes()) {
      if (to == DType::kC64) continue;
      std::vector<std::byte> there(codes * ElementBytes(to));
      Convert(from, elements.data(), to, there.data(), codes);
      bool holds = true;
      for (int64_t code = 0; code < codes; ++code) {
        const double before = ToDouble(from, &elements[code * bytes]);
        const double after = ToDouble(to, &there[code * ElementBytes(to)]);
        const bool same = before == after && std::signbit(before) == std::signbit(after);
        holds = holds && (same || (before != before && after != after));
      }
      EXPECT_EQ(IsLossless(from, to), holds) << Name(from) << " to " << Name(to);
    }
  }
  EXPECT_TRUE(IsLossless(DType::kF32, DType::kF64));
  EXPECT_TRUE(IsLossless(DType::kI32, DType::kF64));
  EXPECT_FALSE(IsLossless(DType::kI32, DType::kF32));
  EXPECT_FALSE(IsLossless(DType::kI64, DType::kF64));
  EXPECT_FALSE(IsLossless(DType::kU64, DType::kI64));
  EXPECT_TRUE(IsLossless(DType::kU32, DType::kI64));
  EXPECT_TRUE(IsLossless(DType::kC64, DType::kC64));
  EXPECT_FALSE(IsLossless(DType::kF32, DType::kC64));
}

TEST(DType, ArraysConvertAsSingleElementsDo) {
  constexpr int64_t kCount = 1031;
  for (DType from : AllDTypes()) {
    if (from == DType::kC64 || from == DType::kI64 || from == DType::kU64) continue;
    const std::vector<std::byte> elements = RandomElements(from, kCount);
    for (DType to : AllDTypes()) {
      if (to == DType::kC64) continue;
      std::vector<std::byte> converted(kCount * ElementBytes(to));
      Convert(from, elements.data(), to, converted.data(), kCount);
      for (int64_t i = 0; i < kCount && from != to; ++i) {
        std::byte single[8];
        FromDouble(to, ToDouble(from, &elements[i * ElementBytes(from)]), single);
        ASSERT_EQ(std::memcmp(single, &converted[i * ElementBytes(to)], ElementBytes(to)), 0)
            << Name(from) << " to " << Name(to) << ": " << ToDouble(from, &elements[i * ElementBytes(from)]);
      }
    }
  }
}

TEST(DType, NamesAreThoseOfTheFormat) {
  std::set<std::string> names;
  for (DType dtype : AllDTypes()) {
    EXPECT_EQ(DTypeFromSafetensors(SafetensorsName(dtype)), dtype);
    EXPECT_EQ(DTypeFromName(Name(dtype)), dtype);
    names.insert(std::string(SafetensorsName(dtype)));
    EXPECT_EQ(IsFloat(dtype) + IsInteger(dtype) + (dtype == DType::kBool) + (dtype == DType::kC64), 1);
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kDTypeCount));
  EXPECT_EQ(DTypeFromName("float32"), std::nullopt);
  EXPECT_EQ(DTypeFromSafetensors("bf16"), std::nullopt);
  EXPECT_EQ(DTypeFromSafetensors("F8_E5M2FNUZ"), DType::kF8E5M2Fnuz);
}

TEST(DType, FileBytesAreWholeAndDoNotOverflow) {
  EXPECT_EQ(FileBytes(DType::kF4, 4), 2);
  EXPECT_EQ(FileBytes(DType::kF4, 3), std::nullopt);
  EXPECT_EQ(FileBytes(DType::kF6E2M3, 4), 3);
  EXPECT_EQ(FileBytes(DType::kF6E2M3, 2), std::nullopt);
  EXPECT_EQ(FileBytes(DType::kC64, 3), 24);
  EXPECT_EQ(FileBytes(DType::kBF16, -1), std::nullopt);
  EXPECT_EQ(FileBytes(DType::kU8, INT64_MAX), INT64_MAX);
  EXPECT_EQ(FileBytes(DType::kU16, INT64_MAX), std::nullopt);
  EXPECT_EQ(FileBytes(DType::kF4, INT64_MAX - 1), std::nullopt);
}

TEST(DTypeDeath, ComplexNumbersAreOnlyMoved) {
  std::byte element[8] = {};
  EXPECT_DEATH(ToDouble(DType::kC64, element), "complex");
  std::byte copy[8] = {};
  Convert(DType::kC64, element, DType::kC64, copy, 1);
  EXPECT_DEATH(Convert(DType::kC64, element, DType::kF32, copy, 1), "complex");
}

// ---- packing

TEST(Codec, EveryPairOfCodesLiesWhereTheFormatSays) {
  for (int low = 0; low < 16; ++low) {
    for (int high = 0; high < 16; ++high) {
      const std::byte elements[2] = {static_cast<std::byte>(low), static_cast<std::byte>(high)};
      std::byte packed;
      Pack(DType::kF4, elements, 2, &packed);
      EXPECT_EQ(std::to_integer<int>(packed), high * 16 + low);
      std::byte back[2];
      Unpack(DType::kF4, &packed, 2, back);
      EXPECT_EQ(std::memcmp(back, elements, 2), 0);
    }
  }
}

TEST(Codec, SixBitCodesLieFourInThreeBytes) {
  for (DType dtype : {DType::kF6E2M3, DType::kF6E3M2}) {
    EXPECT_EQ(PackingGranule(dtype), 4);
    const std::byte elements[4] = {std::byte{0x01}, std::byte{0x02}, std::byte{0x03}, std::byte{0x3f}};
    std::byte packed[3];
    Pack(dtype, elements, 4, packed);
    // 111111 000011 000010 000001, lowest byte first
    EXPECT_EQ(packed[0], std::byte{0x81});
    EXPECT_EQ(packed[1], std::byte{0x30});
    EXPECT_EQ(packed[2], std::byte{0xfc});
    for (int place = 0; place < 4; ++place) {
      for (int code = 0; code < 64; ++code) {
        std::byte four[4] = {};
        four[place] = static_cast<std::byte>(code);
        Pack(dtype, four, 4, packed);
        std::byte back[4];
        Unpack(dtype, packed, 4, back);
        EXPECT_EQ(std::memcmp(back, four, 4), 0);
      }
    }
  }
}

TEST(Codec, WiderTypesPassThrough) {
  const std::vector<std::byte> elements = RandomElements(DType::kF32, 5);
  std::vector<std::byte> packed(elements.size()), back(elements.size());
  Pack(DType::kF32, elements.data(), 5, packed.data());
  EXPECT_EQ(packed, elements);
  Unpack(DType::kF32, packed.data(), 5, back.data());
  EXPECT_EQ(back, elements);
  EXPECT_EQ(PackingGranule(DType::kU8), 1);
  EXPECT_EQ(PackingGranule(DType::kF4), 2);
}

TEST(CodecDeath, HalfAByteIsOurBug) {
  std::byte byte{};
  std::byte codes[3] = {};
  EXPECT_DEATH(Pack(DType::kF4, codes, 3, &byte), "a part of a byte");
}

}  // namespace
}  // namespace twinforge
