#include "onnx/element_type.h"

#include <array>

namespace twinforge {
namespace {

enum class Kind : uint8_t { kNone, kFloating, kSigned, kUnsigned, kBool, kComplex, kString };

struct Row {
  absl::string_view name;
  int64_t bits;
  Kind kind;
};

constexpr std::array<Row, kElementTypeCount> kRows = {{
    {"UNDEFINED", 0, Kind::kNone},
    {"FLOAT", 32, Kind::kFloating},
    {"UINT8", 8, Kind::kUnsigned},
    {"INT8", 8, Kind::kSigned},
    {"UINT16", 16, Kind::kUnsigned},
    {"INT16", 16, Kind::kSigned},
    {"INT32", 32, Kind::kSigned},
    {"INT64", 64, Kind::kSigned},
    {"STRING", 0, Kind::kString},
    {"BOOL", 8, Kind::kBool},
    {"FLOAT16", 16, Kind::kFloating},
    {"DOUBLE", 64, Kind::kFloating},
    {"UINT32", 32, Kind::kUnsigned},
    {"UINT64", 64, Kind::kUnsigned},
    {"COMPLEX64", 64, Kind::kComplex},
    {"COMPLEX128", 128, Kind::kComplex},
    {"BFLOAT16", 16, Kind::kFloating},
    {"FLOAT8E4M3FN", 8, Kind::kFloating},
    {"FLOAT8E4M3FNUZ", 8, Kind::kFloating},
    {"FLOAT8E5M2", 8, Kind::kFloating},
    {"FLOAT8E5M2FNUZ", 8, Kind::kFloating},
    {"UINT4", 4, Kind::kUnsigned},
    {"INT4", 4, Kind::kSigned},
    {"FLOAT4E2M1", 4, Kind::kFloating},
    {"FLOAT8E8M0", 8, Kind::kFloating},
    {"UINT2", 2, Kind::kUnsigned},
    {"INT2", 2, Kind::kSigned},
}};

const Row& RowOf(ElementType type) { return kRows[static_cast<size_t>(type)]; }

}  // namespace

std::optional<ElementType> ElementTypeFromCode(int64_t code) {
  if (code < 0 || code >= kElementTypeCount) return std::nullopt;
  return static_cast<ElementType>(code);
}

absl::string_view ElementTypeName(ElementType type) { return RowOf(type).name; }

ElementCarrier ElementCarrierOf(ElementType type) {
  switch (RowOf(type).kind) {
    case Kind::kNone:
      return ElementCarrier::kNone;
    case Kind::kFloating:
      return ElementCarrier::kDouble;
    case Kind::kSigned:
    case Kind::kBool:
      return ElementCarrier::kInt64;
    case Kind::kUnsigned:
      return type == ElementType::kUint64 ? ElementCarrier::kUint64 : ElementCarrier::kInt64;
    case Kind::kComplex:
      return ElementCarrier::kComplex;
    case Kind::kString:
      return ElementCarrier::kString;
  }
  return ElementCarrier::kNone;
}

int64_t ElementBits(ElementType type) { return RowOf(type).bits; }
int64_t BytesInMemory(ElementType type) { return (RowOf(type).bits + 7) / 8; }

bool IsFloatingElement(ElementType type) { return RowOf(type).kind == Kind::kFloating; }
bool IsIntegerElement(ElementType type) {
  return RowOf(type).kind == Kind::kSigned || RowOf(type).kind == Kind::kUnsigned;
}
bool IsSignedElement(ElementType type) { return RowOf(type).kind == Kind::kSigned; }

int64_t LowestOf(ElementType type) {
  if (!IsSignedElement(type)) return 0;
  return ElementBits(type) == 64 ? INT64_MIN : -(int64_t{1} << (ElementBits(type) - 1));
}

int64_t HighestOf(ElementType type) {
  if (type == ElementType::kBool) return 1;
  const int64_t bits = ElementBits(type) - (IsSignedElement(type) ? 1 : 0);
  return bits >= 63 ? INT64_MAX : (int64_t{1} << bits) - 1;
}

}  // namespace twinforge
