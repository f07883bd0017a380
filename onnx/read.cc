#include "onnx/read.h"

#include "absl/strings/match.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "onnx/check_graph.h"
#include "onnx/onnx-ml.pb.h"

namespace twinforge {
namespace {

absl::StatusOr<OnnxMessage> MessageOf(std::shared_ptr<const ModelBytes> bytes, int64_t view_from,
                                      std::shared_ptr<ExternalFiles> files) {
  OnnxMessage message;
  message.path = bytes->name();
  message.files = std::move(files);
  message.proto = std::make_shared<::onnx::ModelProto>();
  if (bytes->size() == 0) return Error(2001, message.path, "is empty");
  TWIN_RETURN_IF_ERROR(ReadMessage(std::move(bytes), view_from, *message.proto, *message.files));
  return message;
}

}  // namespace

absl::StatusOr<OnnxMessage> ReadOnnxMessage(const std::string& path) {
  TWIN_ASSIGN_OR_RETURN(std::shared_ptr<const ModelBytes> bytes, ModelBytes::Open(path));
  return MessageOf(std::move(bytes), kViewFrom, std::make_shared<ExternalFiles>(path));
}

absl::StatusOr<std::unique_ptr<OnnxModel>> CheckedOnnxModel(const OnnxMessage& message) {
  auto model = std::make_unique<OnnxModel>();
  model->path = message.path;
  model->proto = message.proto;
  model->files = message.files;
  TWIN_RETURN_IF_ERROR(CheckModel(*model));
  return model;
}

absl::StatusOr<std::unique_ptr<OnnxModel>> ReadOnnxModel(const std::string& path) {
  TWIN_ASSIGN_OR_RETURN(const OnnxMessage message, ReadOnnxMessage(path));
  return CheckedOnnxModel(message);
}

absl::StatusOr<std::unique_ptr<OnnxModel>> ParseOnnxModel(absl::string_view bytes, const std::string& name,
                                                          int64_t view_from) {
  TWIN_ASSIGN_OR_RETURN(const OnnxMessage message, MessageOf(ModelBytes::Of(std::string(bytes), name),
                                                             view_from, std::make_shared<ExternalFiles>()));
  return CheckedOnnxModel(message);
}

bool IsOnnxPath(absl::string_view path) { return absl::EndsWithIgnoreCase(path, ".onnx"); }

}  // namespace twinforge
