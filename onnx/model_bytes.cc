#include "onnx/model_bytes.h"

#include <cstring>

#include "base/check.h"
#include "base/status_macros.h"

namespace twinforge {

absl::StatusOr<std::shared_ptr<const ModelBytes>> ModelBytes::Open(const std::string& path) {
  auto bytes = std::make_shared<ModelBytes>();
  bytes->name_ = path;
  TWIN_ASSIGN_OR_RETURN(bytes->file_, ReadableFile::Open(path));
  return std::shared_ptr<const ModelBytes>(std::move(bytes));
}

std::shared_ptr<const ModelBytes> ModelBytes::Of(std::string bytes, const std::string& name) {
  auto made = std::make_shared<ModelBytes>();
  made->name_ = name;
  made->memory_ = std::move(bytes);
  return made;
}

int64_t ModelBytes::size() const {
  return file_ != nullptr ? file_->size() : static_cast<int64_t>(memory_.size());
}

absl::Status ModelBytes::ReadAt(int64_t offset, int64_t count, std::byte* out) const {
  if (file_ != nullptr) return file_->ReadAt(offset, count, out);
  TWIN_CHECK(offset >= 0 && count >= 0 && offset + count <= size(), "bytes that a model in memory has");
  if (count > 0) std::memcpy(out, memory_.data() + offset, static_cast<size_t>(count));
  return absl::OkStatus();
}

absl::Status ModelBytes::CheckUnchanged() const {
  return file_ != nullptr ? file_->CheckUnchanged() : absl::OkStatus();
}

}  // namespace twinforge
