#include "onnx/external_weights.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "onnx/onnx-ml.pb.h"
#include "onnx/read.h"
#include "weights/build.h"
#include "weights/codec.h"

namespace twinforge {
namespace {

constexpr int64_t kShown = 200;

// What the house calls the type; nullopt where it has no such elements.
std::optional<DType> HouseType(int32_t code) {
  using T = ::onnx::TensorProto;
  static const std::map<int32_t, DType> kTypes = {{T::BOOL, DType::kBool},
                                                  {T::FLOAT4E2M1, DType::kF4},
                                                  {T::UINT8, DType::kU8},
                                                  {T::INT8, DType::kI8},
                                                  {T::FLOAT8E5M2, DType::kF8E5M2},
                                                  {T::FLOAT8E4M3FN, DType::kF8E4M3},
                                                  {T::FLOAT8E8M0, DType::kF8E8M0},
                                                  {T::FLOAT8E4M3FNUZ, DType::kF8E4M3Fnuz},
                                                  {T::FLOAT8E5M2FNUZ, DType::kF8E5M2Fnuz},
                                                  {T::INT16, DType::kI16},
                                                  {T::UINT16, DType::kU16},
                                                  {T::FLOAT16, DType::kF16},
                                                  {T::BFLOAT16, DType::kBF16},
                                                  {T::INT32, DType::kI32},
                                                  {T::UINT32, DType::kU32},
                                                  {T::FLOAT, DType::kF32},
                                                  {T::DOUBLE, DType::kF64},
                                                  {T::INT64, DType::kI64},
                                                  {T::UINT64, DType::kU64}};
  const auto at = kTypes.find(code);
  if (at == kTypes.end()) return std::nullopt;
  return at->second;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const OnnxExternalWeights>> OnnxExternalWeights::Open(
    const std::string& path) {
  TWIN_ASSIGN_OR_RETURN(const std::unique_ptr<OnnxModel> model, ReadOnnxModel(path));
  std::shared_ptr<OnnxExternalWeights> weights(new OnnxExternalWeights());
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash);
  for (const OnnxInitializer& initializer : model->graph.initializers) {
    const ::onnx::TensorProto* tensor = initializer.dense;
    if (tensor == nullptr || tensor->data_location() != ::onnx::TensorProto::EXTERNAL) continue;
    const std::string place = absl::StrCat(path, ": ", JsonQuoted(tensor->name(), kShown));
    const std::optional<DType> dtype = HouseType(tensor->data_type());
    const Shape shape(tensor->dims().begin(), tensor->dims().end());
    const std::optional<int64_t> count = CheckedElementCount(shape);
    const std::optional<int64_t> bytes = dtype && count ? FileBytes(*dtype, *count) : std::nullopt;
    if (!bytes) return Error(2003, place, "its elements are of a type or number that is not read by ranges");
    TWIN_ASSIGN_OR_RETURN(const ExternalPlace at, model->files->Find(*tensor, *bytes, place));
    weights->by_name_[tensor->name()] = weights->tensors_.size();
    weights->tensors_.push_back(
        {tensor->name(), Source(tensor->name(), *dtype, shape), at.location, at.offset});
    std::unique_ptr<ReadableFile>& file = weights->files_[at.location];
    if (file != nullptr) continue;
    TWIN_ASSIGN_OR_RETURN(file, ReadableFile::Open(absl::StrCat(folder, "/", at.location)));
  }
  return std::shared_ptr<const OnnxExternalWeights>(std::move(weights));
}

absl::Status OnnxExternalWeights::ReadElements(const Weight& source, int64_t first, int64_t count,
                                               std::byte* out) const {
  const auto found = by_name_.find(source.source_name());
  if (found == by_name_.end() || tensors_[found->second].source.get() != &source) {
    return Error(1310, JsonQuoted(source.source_name(), kShown), "is no initializer of this model");
  }
  if (count == 0) return absl::OkStatus();
  const Tensor& tensor = tensors_[found->second];
  const ReadableFile& file = *files_.at(tensor.file);
  const int64_t bits = BitWidth(source.dtype());
  if (bits >= 8) return file.ReadAt(tensor.offset + first * (bits / 8), count * (bits / 8), out);
  // Narrow ones from the byte that the first of them begins in.
  const int64_t granule = PackingGranule(source.dtype()), begin = first / granule * granule;
  const int64_t end = (first + count + granule - 1) / granule * granule;
  std::vector<std::byte> packed((end - begin) * bits / 8), elements(end - begin);
  TWIN_RETURN_IF_ERROR(
      file.ReadAt(tensor.offset + begin * bits / 8, static_cast<int64_t>(packed.size()), packed.data()));
  Unpack(source.dtype(), packed.data(), end - begin, elements.data());
  std::copy_n(elements.begin() + (first - begin), count, out);
  return absl::OkStatus();
}

absl::Status OnnxExternalWeights::CheckUnchanged() const {
  for (const auto& [name, file] : files_) TWIN_RETURN_IF_ERROR(file->CheckUnchanged());
  return absl::OkStatus();
}

std::vector<std::string> OnnxExternalWeights::Files() const {
  std::vector<std::string> paths;
  for (const auto& [name, file] : files_) paths.push_back(file->path());
  return paths;
}

}  // namespace twinforge
