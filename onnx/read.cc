#include "onnx/read.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

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

// Reads a file from its beginning, in pieces.
class FileStream : public io::CopyingInputStream {
 public:
  explicit FileStream(const ReadableFile& file) : file_(file) {}

  int Read(void* buffer, int size) override {
    const int64_t count = std::min<int64_t>(size, file_.size() - at_);
    if (count == 0) return 0;
    status_ = file_.ReadAt(at_, count, static_cast<std::byte*>(buffer));
    if (!status_.ok()) return -1;
    at_ += count;
    return static_cast<int>(count);
  }

  const absl::Status& status() const { return status_; }

 private:
  const ReadableFile& file_;
  int64_t at_ = 0;
  absl::Status status_;
};

absl::Status ParseFailed(const std::string& path) {
  return Error(2001, path, "is no ONNX model: its bytes do not parse as the format's message",
               "the file is cut short, damaged, of another kind, or nested too deeply");
}

absl::Status ParseFrom(io::ZeroCopyInputStream& stream, const std::string& path, ::onnx::ModelProto& out) {
  io::CodedInputStream coded(&stream);
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
  FileStream pieces(*file);
  io::CopyingInputStreamAdaptor stream(&pieces, 1 << 16);
  const absl::Status parsed = ParseFrom(stream, path, *proto);
  TWIN_RETURN_IF_ERROR(pieces.status());
  TWIN_RETURN_IF_ERROR(parsed);
  TWIN_RETURN_IF_ERROR(file->CheckUnchanged());
  return Checked(std::move(proto), std::make_shared<ExternalFiles>(path), path);
}

absl::StatusOr<std::unique_ptr<OnnxModel>> ParseOnnxModel(absl::string_view bytes, const std::string& name) {
  if (bytes.empty()) return Error(2001, name, "is empty");
  if (bytes.size() > INT32_MAX) return ParseFailed(name);
  auto proto = std::make_shared<::onnx::ModelProto>();
  io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  TWIN_RETURN_IF_ERROR(ParseFrom(stream, name, *proto));
  return Checked(std::move(proto), std::make_shared<ExternalFiles>(), name);
}

bool IsOnnxPath(absl::string_view path) { return absl::EndsWithIgnoreCase(path, ".onnx"); }

}  // namespace twinforge
