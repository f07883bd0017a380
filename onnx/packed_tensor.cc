#include "onnx/packed_tensor.h"

#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "onnx/onnx-ml.pb.h"
#include "onnx/tensor_data.h"
#include "weights/build.h"

namespace twinforge {
namespace {

constexpr std::pair<ElementType, DType> kTypes[] = {
    {ElementType::kFloat, DType::kF32},
    {ElementType::kUint8, DType::kU8},
    {ElementType::kInt8, DType::kI8},
    {ElementType::kUint16, DType::kU16},
    {ElementType::kInt16, DType::kI16},
    {ElementType::kInt32, DType::kI32},
    {ElementType::kInt64, DType::kI64},
    {ElementType::kBool, DType::kBool},
    {ElementType::kFloat16, DType::kF16},
    {ElementType::kDouble, DType::kF64},
    {ElementType::kUint32, DType::kU32},
    {ElementType::kUint64, DType::kU64},
    {ElementType::kComplex64, DType::kC64},
    {ElementType::kBfloat16, DType::kBF16},
    {ElementType::kFloat8E4M3FN, DType::kF8E4M3},
    {ElementType::kFloat8E4M3FNUZ, DType::kF8E4M3Fnuz},
    {ElementType::kFloat8E5M2, DType::kF8E5M2},
    {ElementType::kFloat8E5M2FNUZ, DType::kF8E5M2Fnuz},
    {ElementType::kFloat8E8M0, DType::kF8E8M0},
    {ElementType::kFloat4E2M1, DType::kF4},
};

}  // namespace

absl::StatusOr<PackedTensor> PackedTensor::Of(const ::onnx::TensorProto& tensor, ExternalFiles& files,
                                              const std::string& place) {
  TWIN_RETURN_IF_ERROR(CheckTensor(tensor, files, place));
  PackedTensor packed;
  packed.type_ = *ElementTypeFromCode(tensor.data_type());
  packed.shape_.assign(tensor.dims().begin(), tensor.dims().end());
  if (packed.type_ == ElementType::kString) return Error(2003, place, "holds strings, which have no bytes");
  packed.byte_size_ = PackedBytes(packed.type_, ElementCount(packed.shape_));
  if (tensor.data_location() == ::onnx::TensorProto::EXTERNAL) {
    TWIN_ASSIGN_OR_RETURN(const ExternalPlace at, files.Find(tensor, packed.byte_size_, place));
    packed.range_ = FileRange{&files.FileOf(at), at.offset, at.length, at.location};
    return packed;
  }
  const LeftBytes* left = files.LeftInFile(tensor);
  if (left != nullptr && files.model().file() != nullptr) {
    packed.range_ = FileRange{files.model().file(), left->offset, left->length, ""};
    return packed;
  }
  TWIN_ASSIGN_OR_RETURN(const OnnxTensor read, TensorFromProto(tensor, nullptr, files, place));
  packed.held_ = std::make_shared<const std::string>(PackedData(read));
  return packed;
}

absl::Status PackedTensor::ReadAt(int64_t first, int64_t count, std::byte* out) const {
  TWIN_CHECK(first >= 0 && count >= 0 && first + count <= byte_size_, "bytes that the tensor has");
  if (range_) return range_->file->ReadAt(range_->offset + first, count, out);
  if (count > 0) std::memcpy(out, held_->data() + first, static_cast<size_t>(count));
  return absl::OkStatus();
}

std::optional<DType> WeightTypeOf(ElementType type) {
  for (const auto& [element, dtype] : kTypes) {
    if (element == type) return dtype;
  }
  return std::nullopt;
}

std::optional<ElementType> ElementTypeOf(DType dtype) {
  for (const auto& [element, known] : kTypes) {
    if (known == dtype) return element;
  }
  return std::nullopt;
}

absl::StatusOr<WeightPtr> OnnxTensorReader::Add(const std::string& name, PackedTensor tensor,
                                                const std::string& place) {
  const std::optional<DType> dtype = WeightTypeOf(tensor.type());
  if (!dtype) {
    return Error(2003, place,
                 absl::StrCat("has type ", ElementTypeName(tensor.type()), ", which no weight has"));
  }
  WeightPtr source = Source(name, *dtype, tensor.shape());
  TWIN_CHECK(tensors_.emplace(name, std::move(tensor)).second, "one tensor for each name");
  return source;
}

absl::Status OnnxTensorReader::ReadElements(const Weight& source, int64_t first, int64_t count,
                                            std::byte* out) const {
  const PackedTensor& tensor = tensors_.at(source.source_name());
  const int64_t bits = ElementBits(tensor.type());
  if (bits >= 8) return tensor.ReadAt(first * bits / 8, count * bits / 8, out);
  const int64_t per_byte = 8 / bits, begin = first / per_byte;
  const int64_t end = count == 0 ? begin : (first + count - 1) / per_byte + 1;
  std::vector<uint8_t> packed(static_cast<size_t>(end - begin));
  TWIN_RETURN_IF_ERROR(tensor.ReadAt(begin, end - begin, reinterpret_cast<std::byte*>(packed.data())));
  for (int64_t i = first; i < first + count; ++i) {
    const int code = packed[i / per_byte - begin] >> (i % per_byte * bits) & ((1 << bits) - 1);
    out[i - first] = static_cast<std::byte>(code);
  }
  return absl::OkStatus();
}

absl::Status OnnxTensorReader::CheckUnchanged() const {
  std::set<const ReadableFile*> files;
  for (const auto& [name, tensor] : tensors_) {
    if (tensor.range() && files.insert(tensor.range()->file).second) {
      TWIN_RETURN_IF_ERROR(tensor.range()->file->CheckUnchanged());
    }
  }
  return absl::OkStatus();
}

std::vector<std::string> OnnxTensorReader::Files() const {
  std::set<std::string> paths;
  for (const auto& [name, tensor] : tensors_) {
    if (tensor.range()) paths.insert(tensor.range()->file->path());
  }
  return {paths.begin(), paths.end()};
}

}  // namespace twinforge
