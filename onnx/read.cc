#include "onnx/read.h"

#include <google/protobuf/io/coded_stream.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "onnx/check_graph.h"
#include "onnx/onnx-ml.pb.h"

namespace twinforge {
namespace {

namespace io = google::protobuf::io;

// A graph in a graph is four messages deep: graph, node, attribute, graph. Types and tensors need a few more.
constexpr int kDeepestMessage = 3 * (kDeepestNesting + 1) + 40;

absl::Status ParseFailed(const std::string& path) {
  return Error(2001, path, "is no ONNX model: its bytes do not parse as the format's message",
               "the file is cut short, damaged, of another kind, or nested too deeply");
}

absl::Status ParseFrom(absl::string_view bytes, const std::string& path, ::onnx::ModelProto& out) {
  io::CodedInputStream coded(reinterpret_cast<const uint8_t*>(bytes.data()), static_cast<int>(bytes.size()));
  coded.SetRecursionLimit(kDeepestMessage);
  const bool parsed = out.ParseFromCodedStream(&coded) && coded.ConsumedEntireMessage();
  return parsed ? absl::OkStatus() : ParseFailed(path);
}

absl::StatusOr<std::unique_ptr<OnnxModel>> Checked(std::shared_ptr<const ::onnx::ModelProto> proto,
                                                   std::shared_ptr<ExternalFiles> files,
                                                   const std::string& path) {
  auto model = std::make_unique<OnnxModel>();
  model->path = path;
  model->proto = std::move(proto);
  model->files = std::move(files);
  TWIN_RETURN_IF_ERROR(CheckModel(*model));
  return model;
}

}  // namespace

absl::StatusOr<std::unique_ptr<OnnxModel>> ReadOnnxModel(const std::string& path) {
  TWIN_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, ReadableFile::Open(path));
  if (file->size() == 0) return Error(2001, path, "is empty");
  if (file->size() > INT32_MAX) {
    return Error(2001, path, absl::StrCat("has ", file->size(), " bytes, more than one message may"),
                 "the format keeps larger tensors in files beside the model");
  }
  auto proto = std::make_shared<::onnx::ModelProto>();
  {
    // From one flat buffer, so that each string is allocated once, at its size: a stream would let them grow.
    const std::unique_ptr<char[]> bytes(new char[static_cast<size_t>(file->size())]);
    TWIN_RETURN_IF_ERROR(file->ReadAt(0, file->size(), reinterpret_cast<std::byte*>(bytes.get())));
    const absl::string_view all(bytes.get(), static_cast<size_t>(file->size()));
    TWIN_RETURN_IF_ERROR(ParseFrom(all, path, *proto));
  }
  TWIN_RETURN_IF_ERROR(file->CheckUnchanged());
  return Checked(std::move(proto), std::make_shared<ExternalFiles>(path), path);
}

absl::StatusOr<std::unique_ptr<OnnxModel>> ParseOnnxModel(absl::string_view bytes, const std::string& name) {
  if (bytes.empty()) return Error(2001, name, "is empty");
  if (bytes.size() > INT32_MAX) return ParseFailed(name);
  auto proto = std::make_shared<::onnx::ModelProto>();
  TWIN_RETURN_IF_ERROR(ParseFrom(bytes, name, *proto));
  return Checked(std::move(proto), std::make_shared<ExternalFiles>(), name);
}

bool IsOnnxPath(absl::string_view path) { return absl::EndsWithIgnoreCase(path, ".onnx"); }

}  // namespace twinforge
