// How types and numbers are spelled.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "reference/stablehlo/mlir_body.h"

namespace twinforge {
namespace {

// `value` rounded to `dtype`.
double Rounded(DType dtype, double value) {
  std::byte bytes[8];
  FromDouble(dtype, value, bytes);
  return ToDouble(dtype, bytes);
}

// The bits of a number that has no decimal form.
std::string HexLiteral(DType dtype, double value) {
  std::byte bytes[8] = {};
  FromDouble(dtype, value, bytes);
  uint64_t bits = 0;
  std::memcpy(&bits, bytes, 8);
  return absl::StrFormat("0x%0*X", static_cast<int>(ElementBytes(dtype) * 2), bits);
}

}  // namespace

absl::string_view MlirName(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "i1";
    case DType::kF4:
      return "f4E2M1FN";
    case DType::kF6E2M3:
      return "f6E2M3FN";
    case DType::kF6E3M2:
      return "f6E3M2FN";
    case DType::kU8:
      return "ui8";
    case DType::kF8E5M2:
      return "f8E5M2";
    case DType::kF8E4M3:
      return "f8E4M3FN";
    case DType::kF8E8M0:
      return "f8E8M0FNU";
    case DType::kF8E4M3Fnuz:
      return "f8E4M3FNUZ";
    case DType::kF8E5M2Fnuz:
      return "f8E5M2FNUZ";
    case DType::kU16:
      return "ui16";
    case DType::kU32:
      return "ui32";
    case DType::kU64:
      return "ui64";
    case DType::kC64:
      return "complex<f32>";
    case DType::kI8:
    case DType::kI16:
    case DType::kF16:
    case DType::kBF16:
    case DType::kI32:
    case DType::kF32:
    case DType::kF64:
    case DType::kI64:
      break;
  }
  return Name(dtype);
}

std::string MlirText(const MlirType& type) {
  std::string text = "tensor<";
  for (int64_t extent : type.shape) absl::StrAppend(&text, extent, "x");
  absl::StrAppend(&text, MlirName(type.dtype), ">");
  return text;
}

std::string MlirTypes(const std::vector<MlirValue>& values) {
  const auto type = [](std::string* out, const MlirValue& value) {
    absl::StrAppend(out, MlirText(value.type));
  };
  return absl::StrCat("(", absl::StrJoin(values, ", ", type), ")");
}

std::string MlirNames(const std::vector<MlirValue>& values) {
  return absl::StrJoin(values, ", ",
                       [](std::string* out, const MlirValue& value) { absl::StrAppend(out, value.name); });
}

std::string MlirList(const std::vector<int64_t>& numbers) {
  return absl::StrCat("[", absl::StrJoin(numbers, ", "), "]");
}

std::string MlirLiteral(DType dtype, double value) {
  if (dtype == DType::kBool) return value != 0 ? "true" : "false";
  if (!IsFloat(dtype)) return absl::StrCat(static_cast<int64_t>(value));
  const double rounded = Rounded(dtype, value);
  if (!std::isfinite(rounded)) return HexLiteral(dtype, value);
  std::string text;
  for (int digits = 1; digits <= 17; ++digits) {
    text = absl::StrFormat("%.*g", digits, rounded);
    if (Rounded(dtype, std::strtod(text.c_str(), nullptr)) == rounded) break;
  }
  if (text.find('.') != std::string::npos) return text;
  const size_t exponent = std::min(text.find('e'), text.size());
  return absl::StrCat(text.substr(0, exponent), ".0", text.substr(exponent));
}

std::string MlirIdentifier(absl::string_view text) {
  std::string name(text);
  for (char& c : name) {
    if (!absl::ascii_isalnum(c) && c != '_' && c != '.') c = '_';
  }
  if (name.empty() || absl::ascii_isdigit(name[0])) name.insert(0, 1, '_');
  return name;
}

}  // namespace twinforge
