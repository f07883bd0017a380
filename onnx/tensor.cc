#include "onnx/tensor.h"

#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "weights/minifloat.h"

namespace twinforge {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian, and read as they lie");

template <typename T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

// Small floating types, by their format. Calls `work.operator()<kFormat, Code>()`.
template <typename Work>
bool WithFormat(ElementType type, Work&& work) {
  switch (type) {
    case ElementType::kFloat16:
      work.template operator()<kHalf, uint16_t>();
      return true;
    case ElementType::kBfloat16:
      work.template operator()<kBrain, uint16_t>();
      return true;
    case ElementType::kFloat8E4M3FN:
      work.template operator()<kE4M3, uint8_t>();
      return true;
    case ElementType::kFloat8E4M3FNUZ:
      work.template operator()<kE4M3Fnuz, uint8_t>();
      return true;
    case ElementType::kFloat8E5M2:
      work.template operator()<kE5M2, uint8_t>();
      return true;
    case ElementType::kFloat8E5M2FNUZ:
      work.template operator()<kE5M2Fnuz, uint8_t>();
      return true;
    case ElementType::kFloat4E2M1:
      work.template operator()<kE2M1, uint8_t>();
      return true;
    case ElementType::kFloat8E8M0:
      work.template operator()<kE8M0, uint8_t>();
      return true;
    default:
      return false;
  }
}

template <typename From, typename To>
void LoadAll(const OnnxTensor& tensor, std::vector<To>& out) {
  const std::byte* at = tensor.bytes();
  for (int64_t i = 0; i < tensor.count(); ++i) out[i] = static_cast<To>(Load<From>(at + i * sizeof(From)));
}

// Calls `work` with a value of the C++ type that holds the elements of an integer or bool type.
template <typename Work>
bool WithInteger(ElementType type, Work&& work) {
  switch (type) {
    case ElementType::kBool:
    case ElementType::kUint8:
    case ElementType::kUint4:
    case ElementType::kUint2:
      work(uint8_t{});
      return true;
    case ElementType::kInt8:
    case ElementType::kInt4:
    case ElementType::kInt2:
      work(int8_t{});
      return true;
    case ElementType::kUint16:
      work(uint16_t{});
      return true;
    case ElementType::kInt16:
      work(int16_t{});
      return true;
    case ElementType::kUint32:
      work(uint32_t{});
      return true;
    case ElementType::kInt32:
      work(int32_t{});
      return true;
    case ElementType::kUint64:
      work(uint64_t{});
      return true;
    case ElementType::kInt64:
      work(int64_t{});
      return true;
    default:
      return false;
  }
}

uint64_t CodeOf(ElementType type, double value) {
  uint64_t code = 0;
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  WithFormat(type,
             [&]<Minifloat kFormat, typename Code>() { code = EncodeMinifloat<kFormat, Binary64>(bits); });
  return code;
}

// An integer's low bits as a sub-byte type of the given width keeps them.
int64_t Narrowed(ElementType type, int64_t value) {
  const int64_t bits = ElementBits(type);
  if (bits >= 8) return value;
  const int64_t low = value & ((int64_t{1} << bits) - 1);
  return IsSignedElement(type) && (low >> (bits - 1)) != 0 ? low - (int64_t{1} << bits) : low;
}

template <typename T>
void StoreFloats(ElementType type, absl::Span<const T> values, std::vector<std::byte>& out) {
  const auto put = [&](auto zero) {
    using Held = decltype(zero);
    for (size_t i = 0; i < values.size(); ++i) {
      const Held held = static_cast<Held>(values[i]);
      std::memcpy(out.data() + i * sizeof(Held), &held, sizeof(Held));
    }
  };
  if (type == ElementType::kDouble) return put(double{});
  if (type == ElementType::kFloat) return put(float{});
  WithFormat(type, [&]<Minifloat kFormat, typename Code>() {
    for (size_t i = 0; i < values.size(); ++i) {
      const Code code = static_cast<Code>(
          EncodeMinifloat<kFormat, Binary64>(std::bit_cast<uint64_t>(static_cast<double>(values[i]))));
      std::memcpy(out.data() + i * sizeof(Code), &code, sizeof(Code));
    }
  });
}

// What C++ leaves undefined is defined here: NaN becomes 0, what does not fit is held at the ends of int64.
template <typename T>
int64_t AsInteger(T value) {
  if constexpr (std::is_same_v<T, double>) {
    if (!(value == value)) return 0;
    if (value >= 9223372036854775808.0)
      return value >= 18446744073709551616.0 ? INT64_MAX : static_cast<int64_t>(static_cast<uint64_t>(value));
    if (value < -9223372036854775808.0) return INT64_MIN;
  }
  return static_cast<int64_t>(value);
}

template <typename T>
void StoreIntegers(ElementType type, absl::Span<const T> values, std::vector<std::byte>& out) {
  if (type == ElementType::kBool) {
    for (size_t i = 0; i < values.size(); ++i) out[i] = std::byte{values[i] != T{0}};
    return;
  }
  WithInteger(type, [&](auto zero) {
    using Held = decltype(zero);
    for (size_t i = 0; i < values.size(); ++i) {
      const Held held = static_cast<Held>(Narrowed(type, AsInteger(values[i])));
      std::memcpy(out.data() + i * sizeof(Held), &held, sizeof(Held));
    }
  });
}

}  // namespace

OnnxTensor::OnnxTensor(ElementType type, Shape shape, std::shared_ptr<const void> owner,
                       const std::byte* bytes)
    : type_(type),
      shape_(std::move(shape)),
      count_(ElementCount(shape_)),
      owner_(std::move(owner)),
      bytes_(bytes) {}

OnnxTensor::OnnxTensor(ElementType type, Shape shape, std::vector<std::byte> bytes)
    : type_(type), shape_(std::move(shape)), count_(ElementCount(shape_)) {
  TWIN_CHECK(static_cast<int64_t>(bytes.size()) == byte_size(), "a tensor whose bytes do not fit its shape");
  auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  bytes_ = owner->data();
  owner_ = std::move(owner);
}

OnnxTensor::OnnxTensor(Shape shape, std::vector<std::string> strings)
    : type_(ElementType::kString), shape_(std::move(shape)), count_(ElementCount(shape_)) {
  TWIN_CHECK(static_cast<int64_t>(strings.size()) == count_, "a tensor whose strings do not fit its shape");
  strings_ = std::make_shared<const std::vector<std::string>>(std::move(strings));
}

OnnxTensor OnnxTensor::WithShape(Shape shape) const {
  TWIN_CHECK(ElementCount(shape) == count_, "another shape with another number of elements");
  OnnxTensor result = *this;
  result.shape_ = std::move(shape);
  return result;
}

OnnxTensor OnnxTensor::WithType(ElementType type) const {
  TWIN_CHECK(BytesInMemory(type) == BytesInMemory(type_) && type != ElementType::kString,
             "another type of another width");
  OnnxTensor result = *this;
  result.type_ = type;
  return result;
}

template <typename T>
std::vector<T> Elements(const OnnxTensor& tensor) {
  std::vector<T> out(static_cast<size_t>(tensor.count()));
  if constexpr (std::is_same_v<T, std::complex<double>>) {
    const std::byte* at = tensor.bytes();
    for (int64_t i = 0; i < tensor.count(); ++i) {
      if (tensor.type() == ElementType::kComplex64) out[i] = Load<std::complex<float>>(at + i * 8);
      if (tensor.type() == ElementType::kComplex128) out[i] = Load<std::complex<double>>(at + i * 16);
    }
  } else {
    if (tensor.type() == ElementType::kFloat) return LoadAll<float, T>(tensor, out), out;
    if (tensor.type() == ElementType::kDouble) return LoadAll<double, T>(tensor, out), out;
    if (WithInteger(tensor.type(), [&](auto zero) { LoadAll<decltype(zero), T>(tensor, out); })) return out;
    const bool known = WithFormat(tensor.type(), [&]<Minifloat kFormat, typename Code>() {
      for (int64_t i = 0; i < tensor.count(); ++i) {
        out[i] = static_cast<T>(DecodeMinifloat(kFormat, Load<Code>(tensor.bytes() + i * sizeof(Code))));
      }
    });
    TWIN_CHECK(known, "elements that are no numbers");
  }
  return out;
}
template std::vector<double> Elements(const OnnxTensor&);
template std::vector<int64_t> Elements(const OnnxTensor&);
template std::vector<uint64_t> Elements(const OnnxTensor&);
template std::vector<std::complex<double>> Elements(const OnnxTensor&);

template <typename T>
OnnxTensor TensorOf(ElementType type, Shape shape, absl::Span<const T> values) {
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(BytesInMemory(type)));
  if constexpr (std::is_same_v<T, std::complex<double>>) {
    for (size_t i = 0; i < values.size(); ++i) {
      const std::complex<float> narrow(values[i]);
      if (type == ElementType::kComplex64) std::memcpy(bytes.data() + i * 8, &narrow, 8);
      if (type == ElementType::kComplex128) std::memcpy(bytes.data() + i * 16, &values[i], 16);
    }
  } else if (IsFloatingElement(type)) {
    StoreFloats(type, values, bytes);
  } else {
    StoreIntegers(type, values, bytes);
  }
  return OnnxTensor(type, std::move(shape), std::move(bytes));
}
template OnnxTensor TensorOf(ElementType, Shape, absl::Span<const double>);
template OnnxTensor TensorOf(ElementType, Shape, absl::Span<const int64_t>);
template OnnxTensor TensorOf(ElementType, Shape, absl::Span<const uint64_t>);
template OnnxTensor TensorOf(ElementType, Shape, absl::Span<const std::complex<double>>);

double RoundedTo(ElementType type, double value) {
  if (type == ElementType::kDouble) return value;
  if (type == ElementType::kFloat) return static_cast<double>(static_cast<float>(value));
  const uint32_t code = static_cast<uint32_t>(CodeOf(type, value));
  double result = value;
  WithFormat(type, [&]<Minifloat kFormat, typename Code>() { result = DecodeMinifloat(kFormat, code); });
  return result;
}

int64_t WrappedTo(ElementType type, int64_t value) {
  if (type == ElementType::kBool) return value != 0 ? 1 : 0;
  int64_t result = value;
  WithInteger(type, [&](auto zero) {
    result = Narrowed(type, static_cast<int64_t>(static_cast<decltype(zero)>(value)));
  });
  return result;
}

OnnxTensor TakeElements(absl::Span<const OnnxTensor> xs, Shape shape, absl::Span<const int32_t> which,
                        absl::Span<const int64_t> from) {
  if (xs[0].is_string()) {
    std::vector<std::string> strings(from.size());
    for (size_t k = 0; k < from.size(); ++k) {
      if (from[k] >= 0) strings[k] = xs[which.empty() ? 0 : which[k]].strings()[from[k]];
    }
    return OnnxTensor(std::move(shape), std::move(strings));
  }
  const size_t width = static_cast<size_t>(BytesInMemory(xs[0].type()));
  std::vector<std::byte> bytes(from.size() * width);
  for (size_t k = 0; k < from.size(); ++k) {
    if (from[k] < 0) continue;
    const OnnxTensor& x = xs[which.empty() ? 0 : which[k]];
    std::memcpy(bytes.data() + k * width, x.bytes() + static_cast<size_t>(from[k]) * width, width);
  }
  return OnnxTensor(xs[0].type(), std::move(shape), std::move(bytes));
}

OnnxTensor TakeElements(const OnnxTensor& x, Shape shape, absl::Span<const int64_t> from) {
  return TakeElements(absl::MakeConstSpan(&x, 1), std::move(shape), {}, from);
}

OnnxTensor ScalarOf(ElementType type, double value) {
  return TensorOf<double>(type, {}, absl::MakeConstSpan(&value, 1));
}

OnnxTensor Int64Tensor(const std::vector<int64_t>& values) {
  return TensorOf<int64_t>(ElementType::kInt64, {static_cast<int64_t>(values.size())}, values);
}

OnnxTensor BoolScalar(bool value) {
  const int64_t held = value ? 1 : 0;
  return TensorOf<int64_t>(ElementType::kBool, {}, absl::MakeConstSpan(&held, 1));
}

}  // namespace twinforge
