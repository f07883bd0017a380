#include "importers/onnx/stored.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "onnx/onnx-ml.pb.h"
#include "weights/build.h"

namespace twinforge {

std::optional<DType> StoredType(ElementType type) {
  if (!IsFloatingElement(type) || BytesInMemory(type) < 2) return std::nullopt;
  return WeightTypeOf(type);
}

namespace {

const ::onnx::TensorProto* ValueOf(const OnnxNode& node) {
  if (!node.domain.empty() || node.proto->op_type() != "Constant" || node.outputs.size() != 1) return nullptr;
  for (const ::onnx::AttributeProto& attribute : node.proto->attribute()) {
    if (attribute.name() == "value" && attribute.has_t() && attribute.ref_attr_name().empty())
      return &attribute.t();
  }
  return nullptr;
}

}  // namespace

absl::Status OnnxStored::Add(int32_t slot, const ::onnx::TensorProto& proto, bool initializer) {
  const std::optional<ElementType> type = ElementTypeFromCode(proto.data_type());
  const std::optional<int64_t> count = CheckedElementCount(Shape(proto.dims().begin(), proto.dims().end()));
  if (!type || !StoredType(*type) || !count || *count == 0) return absl::OkStatus();
  const std::string name(model_->graph.names[slot]);
  const std::string place = absl::StrCat(model_->path, ": ", JsonQuoted(name, 200));
  TWIN_ASSIGN_OR_RETURN(const PackedTensor tensor, PackedTensor::Of(proto, *model_->files, place));
  Row row{std::filesystem::path(model_->path).filename().string(), nullptr, initializer};
  if (tensor.range() && !tensor.range()->location.empty()) row.file = tensor.range()->location;
  TWIN_ASSIGN_OR_RETURN(row.source, OnnxTensorReader::Add(name, tensor, place));
  names_[slot] = name;
  rows_.emplace(name, std::move(row));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<OnnxStored>> OnnxStored::Make(std::shared_ptr<const OnnxModel> model) {
  auto stored = std::make_shared<OnnxStored>();
  stored->model_ = std::move(model);
  TWIN_ASSIGN_OR_RETURN(stored->file_, ReadableFile::Open(stored->model_->path));
  const OnnxGraph& graph = stored->model_->graph;
  for (const OnnxInitializer& initializer : graph.initializers) {
    if (initializer.dense != nullptr)
      TWIN_RETURN_IF_ERROR(stored->Add(initializer.slot, *initializer.dense, true));
  }
  for (const OnnxNode& node : graph.nodes) {
    const ::onnx::TensorProto* value = ValueOf(node);
    if (value != nullptr && node.outputs[0] >= 0)
      TWIN_RETURN_IF_ERROR(stored->Add(node.outputs[0], *value, false));
  }
  return stored;
}

WeightPtr OnnxStored::Find(int32_t slot) const {
  const auto name = names_.find(slot);
  return name == names_.end() ? nullptr : rows_.at(name->second).source;
}

std::vector<SourceTensor> OnnxStored::Sources() const {
  std::vector<SourceTensor> sources;
  for (const auto& [name, row] : rows_) sources.push_back({name, row.file, row.source, ""});
  return sources;
}

std::vector<SourceFile> OnnxStored::SourceFiles() const {
  const std::filesystem::path path(model_->path);
  std::vector<SourceFile> files = {{path.filename().string(), file_->size(), ""}};
  for (const std::string& location : model_->files->locations()) {
    std::error_code failed;
    const auto bytes = std::filesystem::file_size(path.parent_path() / location, failed);
    files.push_back({location, failed ? 0 : static_cast<int64_t>(bytes), ""});
  }
  return files;
}

absl::Status OnnxStored::CheckUnchanged() const {
  TWIN_RETURN_IF_ERROR(file_->CheckUnchanged());
  return OnnxTensorReader::CheckUnchanged();
}

std::vector<std::string> OnnxStored::Files() const {
  std::vector<std::string> files = {model_->path};
  const std::filesystem::path folder = std::filesystem::path(model_->path).parent_path();
  for (const std::string& location : model_->files->locations())
    files.push_back((folder / location).string());
  return files;
}

absl::StatusOr<OnnxTensor> ElementsOf(const WeightPtr& program, const TensorReader& reader) {
  const std::optional<ElementType> type = ElementTypeOf(program->dtype());
  TWIN_CHECK(type.has_value(), "a weight of a type that ONNX files do not give");
  std::vector<std::byte> bytes(static_cast<size_t>(program->element_count() * BytesInMemory(*type)));
  Scratch scratch;
  TWIN_RETURN_IF_ERROR(Read(program, WholeBox(program->shape()), reader, bytes.data(), scratch));
  return OnnxTensor(*type, program->shape(), std::move(bytes));
}

}  // namespace twinforge
