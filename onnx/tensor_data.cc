#include "onnx/tensor_data.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "onnx/onnx-ml.pb.h"

namespace twinforge {
namespace {

using ::onnx::TensorProto;

// Of a shape without elements, what its other extents make: loops run over them.
constexpr int64_t kMostWithoutElements = int64_t{1} << 27;

// The field in which typed data of a type lies.
enum class Field { kFloat, kInt32, kString, kInt64, kDouble, kUint64 };

Field FieldOf(ElementType type) {
  switch (type) {
    case ElementType::kFloat:
    case ElementType::kComplex64:
      return Field::kFloat;
    case ElementType::kDouble:
    case ElementType::kComplex128:
      return Field::kDouble;
    case ElementType::kString:
      return Field::kString;
    case ElementType::kInt64:
      return Field::kInt64;
    case ElementType::kUint32:
    case ElementType::kUint64:
      return Field::kUint64;
    default:
      return Field::kInt32;
  }
}

int64_t SizeOf(const TensorProto& t, Field field) {
  switch (field) {
    case Field::kFloat:
      return t.float_data_size();
    case Field::kInt32:
      return t.int32_data_size();
    case Field::kString:
      return t.string_data_size();
    case Field::kInt64:
      return t.int64_data_size();
    case Field::kDouble:
      return t.double_data_size();
    case Field::kUint64:
      return t.uint64_data_size();
  }
  return 0;
}

// How many entries of its field the type needs for `count` elements.
int64_t EntriesFor(ElementType type, int64_t count) {
  if (ElementTypeName(type).substr(0, 7) == "COMPLEX") return 2 * count;
  return ElementBits(type) > 0 && ElementBits(type) < 8 ? PackedBytes(type, count) : count;
}

struct Header {
  ElementType type;
  Shape shape;
  int64_t count;
};

absl::StatusOr<Header> HeaderOf(const TensorProto& t, const std::string& place) {
  Header header;
  const std::optional<ElementType> type = ElementTypeFromCode(t.data_type());
  if (!type || *type == ElementType::kUndefined) {
    return Error(2003, place,
                 absl::StrCat("has element type ", t.data_type(), ", which the format does not know"));
  }
  header.type = *type;
  header.shape.assign(t.dims().begin(), t.dims().end());
  const std::optional<int64_t> count = CheckedElementCount(header.shape);
  if (!count || *count > std::numeric_limits<int64_t>::max() / 32) {
    return Error(2003, place,
                 absl::StrCat("has a shape ", ShapeText(header.shape).substr(0, 200), " that is none"));
  }
  header.count = *count;
  if (*count == 0) {
    Shape bound = header.shape;
    for (int64_t& extent : bound) extent = std::max<int64_t>(extent, 1);
    if (CheckedElementCount(bound).value_or(INT64_MAX) > kMostWithoutElements) {
      return Error(2003, place,
                   absl::StrCat("has no element, and a shape ", ShapeText(header.shape).substr(0, 200)));
    }
  }
  return header;
}

bool IsExternal(const TensorProto& t) { return t.data_location() == TensorProto::EXTERNAL; }

absl::Status SizeMismatch(const Header& h, const std::string& place, absl::string_view what, int64_t has,
                          int64_t wanted) {
  return Error(2003, place,
               absl::StrCat(what, " has ", has, " entries; ", ElementTypeName(h.type),
                            ShapeText(h.shape).substr(0, 200), " asks for ", wanted));
}

// Bytes of raw data, in the message or left in the file; nullopt where there is none.
std::optional<int64_t> RawBytes(const TensorProto& t, const ExternalFiles& files) {
  if (const LeftBytes* left = files.LeftInFile(t); left != nullptr) return left->length;
  if (!t.has_raw_data()) return std::nullopt;
  return static_cast<int64_t>(t.raw_data().size());
}

absl::Status CheckInline(const TensorProto& t, const Header& h, const ExternalFiles& files,
                         const std::string& place) {
  const Field field = FieldOf(h.type);
  for (const Field other :
       {Field::kFloat, Field::kInt32, Field::kString, Field::kInt64, Field::kDouble, Field::kUint64}) {
    if (other != field && SizeOf(t, other) != 0) {
      return Error(2003, place,
                   absl::StrCat("holds data in a field that is not ", ElementTypeName(h.type), "'s"));
    }
  }
  const std::optional<int64_t> raw = RawBytes(t, files);
  if (raw && h.type == ElementType::kString) {
    return Error(2003, place, "holds strings as raw bytes, which the format does not know");
  }
  // Where both are present, raw data is what counts.
  if (raw && !(*raw == 0 && SizeOf(t, field) != 0)) {
    const int64_t wanted = PackedBytes(h.type, h.count);
    return *raw == wanted ? absl::OkStatus() : SizeMismatch(h, place, "raw_data", *raw, wanted);
  }
  const int64_t wanted = EntriesFor(h.type, h.count), has = SizeOf(t, field);
  return has == wanted ? absl::OkStatus() : SizeMismatch(h, place, "its data", has, wanted);
}

// Elements of sub-byte types, each in a byte of its own, sign-extended where the type has a sign.
std::vector<std::byte> Unpacked(ElementType type, int64_t count, const uint8_t* packed) {
  const int64_t bits = ElementBits(type), per_byte = 8 / bits;
  std::vector<std::byte> out(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    int value = packed[i / per_byte] >> (i % per_byte * bits) & ((1 << bits) - 1);
    if (IsSignedElement(type) && value >> (bits - 1) != 0) value -= 1 << bits;
    out[i] = static_cast<std::byte>(value);
  }
  return out;
}

bool HoldsOtherThanZeroAndOne(const std::byte* bytes, int64_t count) {
  return std::any_of(bytes, bytes + count, [](std::byte b) { return static_cast<int>(b) > 1; });
}

// A tensor whose packed bytes are `bytes`; a view of them where each element has a byte of its own.
OnnxTensor FromPacked(const Header& h, std::shared_ptr<const void> owner, const std::byte* bytes) {
  if (ElementBits(h.type) < 8) {
    return OnnxTensor(h.type, h.shape, Unpacked(h.type, h.count, reinterpret_cast<const uint8_t*>(bytes)));
  }
  if (h.type == ElementType::kBool && HoldsOtherThanZeroAndOne(bytes, h.count)) {
    std::vector<std::byte> copy(bytes, bytes + h.count);
    for (std::byte& b : copy) b = std::byte{b != std::byte{0}};
    return OnnxTensor(h.type, h.shape, std::move(copy));
  }
  return OnnxTensor(h.type, h.shape, std::move(owner), bytes);
}

template <typename Field>
OnnxTensor ViewOf(const Header& h, std::shared_ptr<const void> owner, const Field& field) {
  return OnnxTensor(h.type, h.shape, std::move(owner), reinterpret_cast<const std::byte*>(field.data()));
}

// The low bytes of each entry of int32_data or uint64_data.
template <typename Entries>
std::vector<std::byte> LowBytes(const Entries& entries, int64_t width) {
  std::vector<std::byte> out(static_cast<size_t>(entries.size() * width));
  for (int i = 0; i < entries.size(); ++i) {
    const auto entry = entries.Get(i);
    std::memcpy(out.data() + i * width, &entry, static_cast<size_t>(width));
  }
  return out;
}

OnnxTensor FromTyped(const TensorProto& t, const Header& h, std::shared_ptr<const void> owner) {
  switch (FieldOf(h.type)) {
    case Field::kFloat:
      return ViewOf(h, std::move(owner), t.float_data());
    case Field::kDouble:
      return ViewOf(h, std::move(owner), t.double_data());
    case Field::kInt64:
      return ViewOf(h, std::move(owner), t.int64_data());
    case Field::kString:
      return OnnxTensor(h.shape, {t.string_data().begin(), t.string_data().end()});
    case Field::kUint64:
      if (h.type == ElementType::kUint64) return ViewOf(h, std::move(owner), t.uint64_data());
      return OnnxTensor(h.type, h.shape, LowBytes(t.uint64_data(), 4));
    case Field::kInt32:
      if (h.type == ElementType::kInt32) return ViewOf(h, std::move(owner), t.int32_data());
      auto bytes = std::make_shared<std::vector<std::byte>>(LowBytes(t.int32_data(), BytesInMemory(h.type)));
      const std::byte* at = bytes->data();
      return FromPacked(h, std::move(bytes), at);
  }
  return OnnxTensor();
}

// Linear places of a sparse tensor's values, checked: ascending, each once, within the shape.
absl::StatusOr<std::vector<int64_t>> PlacesOf(const OnnxTensor& indices, int64_t values, const Shape& shape,
                                              int64_t count, const std::string& place) {
  const std::vector<int64_t> at = Elements<int64_t>(indices);
  const int64_t rank = static_cast<int64_t>(shape.size());
  std::vector<int64_t> places(static_cast<size_t>(values));
  const bool linear = indices.rank() == 1;
  int64_t before = -1;
  for (int64_t k = 0; k < values; ++k) {
    int64_t p = linear ? at[k] : 0;
    for (int64_t d = 0; !linear && d < rank; ++d) {
      const int64_t i = at[k * rank + d];
      if (i < 0 || i >= shape[d]) p = count;
      if (p < count) p = p * shape[d] + i;
    }
    if (p < 0 || p >= count) return Error(2003, place, "a sparse value lies outside of the shape");
    if (p <= before) return Error(2003, place, "the places of sparse values do not ascend");
    places[k] = before = p;
  }
  return places;
}

}  // namespace

int64_t PackedBytes(ElementType type, int64_t count) { return (count * ElementBits(type) + 7) / 8; }

absl::Status CheckTensor(const TensorProto& t, ExternalFiles& files, const std::string& place) {
  TWIN_ASSIGN_OR_RETURN(const Header h, HeaderOf(t, place));
  if (t.has_segment()) return Error(2003, place, "is a segment of a tensor, which no reader joins");
  if (!IsExternal(t)) return CheckInline(t, h, files, place);
  if (h.type == ElementType::kString) return Error(2003, place, "holds strings as external data");
  return files.Find(t, PackedBytes(h.type, h.count), place).status();
}

absl::Status CheckSparseTensor(const ::onnx::SparseTensorProto& s, ExternalFiles& files,
                               const std::string& place) {
  TWIN_RETURN_IF_ERROR(CheckTensor(s.values(), files, place));
  TWIN_RETURN_IF_ERROR(CheckTensor(s.indices(), files, place));
  const Shape shape(s.dims().begin(), s.dims().end());
  const std::optional<int64_t> count = CheckedElementCount(shape);
  if (!count) return Error(2003, place, "has a shape that is none");
  if (s.values().data_type() == TensorProto::STRING) return Error(2003, place, "holds strings sparsely");
  const int64_t values = s.values().dims_size() == 1 ? s.values().dims(0) : -1;
  const bool linear = s.indices().dims_size() == 1;
  const bool fits = linear ? s.indices().dims(0) == values
                           : s.indices().dims_size() == 2 && s.indices().dims(0) == values &&
                                 s.indices().dims(1) == static_cast<int64_t>(shape.size());
  if (values < 0 || !fits || s.indices().data_type() != TensorProto::INT64) {
    return Error(2003, place, "has sparse values whose places are not INT64 [values] or [values, rank]");
  }
  return absl::OkStatus();
}

absl::StatusOr<OnnxTensor> TensorFromProto(const TensorProto& t, std::shared_ptr<const void> owner,
                                           ExternalFiles& files, const std::string& place) {
  TWIN_RETURN_IF_ERROR(CheckTensor(t, files, place));
  TWIN_ASSIGN_OR_RETURN(const Header h, HeaderOf(t, place));
  if (IsExternal(t)) {
    TWIN_ASSIGN_OR_RETURN(const ExternalPlace at, files.Find(t, PackedBytes(h.type, h.count), place));
    auto bytes = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(at.length));
    TWIN_RETURN_IF_ERROR(files.Read(at, bytes->data()));
    const std::byte* data = bytes->data();
    return FromPacked(h, std::move(bytes), data);
  }
  if (const LeftBytes* left = files.LeftInFile(t); left != nullptr) {
    auto bytes = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(left->length));
    TWIN_RETURN_IF_ERROR(files.Read(*left, bytes->data()));
    const std::byte* data = bytes->data();
    return FromPacked(h, std::move(bytes), data);
  }
  if (t.has_raw_data() && !(t.raw_data().empty() && h.count != 0)) {
    return FromPacked(h, std::move(owner), reinterpret_cast<const std::byte*>(t.raw_data().data()));
  }
  return FromTyped(t, h, std::move(owner));
}

absl::StatusOr<OnnxTensor> DenseFromSparse(const ::onnx::SparseTensorProto& s, ExternalFiles& files,
                                           int64_t most_elements, const std::string& place) {
  TWIN_RETURN_IF_ERROR(CheckSparseTensor(s, files, place));
  const Shape shape(s.dims().begin(), s.dims().end());
  const int64_t count = ElementCount(shape);
  if (count > most_elements) return Error(1902, place, absl::StrCat("has ", count, " elements, written out"));
  const auto no_owner = std::shared_ptr<const void>();
  TWIN_ASSIGN_OR_RETURN(const OnnxTensor values, TensorFromProto(s.values(), no_owner, files, place));
  TWIN_ASSIGN_OR_RETURN(const OnnxTensor indices, TensorFromProto(s.indices(), no_owner, files, place));
  TWIN_ASSIGN_OR_RETURN(const std::vector<int64_t> places,
                        PlacesOf(indices, values.count(), shape, count, place));
  std::vector<int64_t> from(static_cast<size_t>(count), -1);
  for (size_t k = 0; k < places.size(); ++k) from[places[k]] = static_cast<int64_t>(k);
  return TakeElements(values, shape, from);
}

std::string PackedData(const OnnxTensor& tensor) {
  const int64_t bits = ElementBits(tensor.type());
  if (bits >= 8) {
    return std::string(reinterpret_cast<const char*>(tensor.bytes()),
                       static_cast<size_t>(tensor.byte_size()));
  }
  std::string packed(static_cast<size_t>(PackedBytes(tensor.type(), tensor.count())), '\0');
  const int64_t per_byte = 8 / bits;
  for (int64_t i = 0; i < tensor.count(); ++i) {
    const int code = static_cast<int>(tensor.bytes()[i]) & ((1 << bits) - 1);
    packed[i / per_byte] = static_cast<char>(packed[i / per_byte] | code << (i % per_byte * bits));
  }
  return packed;
}

void TensorToProto(const OnnxTensor& tensor, TensorProto& out) {
  out.set_data_type(static_cast<int32_t>(tensor.type()));
  for (const int64_t extent : tensor.shape()) out.add_dims(extent);
  if (!tensor.is_string()) {
    out.set_raw_data(PackedData(tensor));
    return;
  }
  for (const std::string& s : tensor.strings()) out.add_string_data(s);
}

}  // namespace twinforge
