// The element types of ONNX tensors, under the standard's numbers.
//
// In memory each element has bytes of its own: types of two and four bits lie in one byte, sign-extended
// where they have a sign. How a file packs them is tensor_data.h's affair.
#ifndef TWINFORGE_ONNX_ELEMENT_TYPE_H_
#define TWINFORGE_ONNX_ELEMENT_TYPE_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace twinforge {

// TensorProto.DataType.
enum class ElementType : uint8_t {
  kUndefined = 0,
  kFloat = 1,
  kUint8 = 2,
  kInt8 = 3,
  kUint16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kUint32 = 12,
  kUint64 = 13,
  kComplex64 = 14,
  kComplex128 = 15,
  kBfloat16 = 16,
  kFloat8E4M3FN = 17,
  kFloat8E4M3FNUZ = 18,
  kFloat8E5M2 = 19,
  kFloat8E5M2FNUZ = 20,
  kUint4 = 21,
  kInt4 = 22,
  kFloat4E2M1 = 23,
  kFloat8E8M0 = 24,
  kUint2 = 25,
  kInt2 = 26,
};
inline constexpr int kElementTypeCount = 27;

// In which numbers the elements of a type are computed: every value of the type is one of these, exactly.
enum class ElementCarrier : uint8_t { kNone, kDouble, kInt64, kUint64, kComplex, kString };

// The type of a number in a file; nullopt for numbers that the standard does not know.
std::optional<ElementType> ElementTypeFromCode(int64_t code);

absl::string_view ElementTypeName(ElementType type);  // "FLOAT16", as the standard spells it

ElementCarrier ElementCarrierOf(ElementType type);  // kUint64 for kUint64 alone
int64_t ElementBits(ElementType type);              // in a file; 0 for strings and kUndefined
int64_t BytesInMemory(ElementType type);            // of one element; 0 for strings and kUndefined

bool IsFloatingElement(ElementType type);  // any floating type, complex not
bool IsIntegerElement(ElementType type);   // any integer, bool not
bool IsSignedElement(ElementType type);    // signed integers
// Of integers: the least and the largest value; kUint64's largest is not in int64 and is given as INT64_MAX.
int64_t LowestOf(ElementType type);
int64_t HighestOf(ElementType type);

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_ELEMENT_TYPE_H_
