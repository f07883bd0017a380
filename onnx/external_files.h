// The files in which a model's tensors' bytes lie: those beside it, and its own.
//
// Large raw data of the model's own file is not read with its message (read_message.h); which tensors left
// theirs there is noted here, by the tensor's address, and read when asked for, like external data.
//
// A location is a relative path. Whatever links stand in it, the file that is read lies below one of two
// roots: the folder in which the model was named, and the folder of the file that this name leads to (caches
// hold models as links into a store). Anything else is TF2004: absolute paths, `..` that leads out, links
// that lead out, files with a second hard link (which may be another's), folders and devices.
#ifndef TWINFORGE_ONNX_EXTERNAL_FILES_H_
#define TWINFORGE_ONNX_EXTERNAL_FILES_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/file.h"
#include "onnx/model_bytes.h"

namespace onnx {
class TensorProto;
}

namespace twinforge {

// Where a tensor's bytes lie: `length` bytes at `offset`, which the file has.
struct ExternalPlace {
  std::string location;
  int64_t offset = 0;
  int64_t length = 0;
};

// Raw data in the model's own file.
struct LeftBytes {
  int64_t offset = 0;
  int64_t length = 0;
};

class ExternalFiles {
 public:
  ExternalFiles() = default;  // no roots: every location is refused
  explicit ExternalFiles(const std::string& model_path);

  // What `tensor` says of its bytes, checked against the file; `wanted` bytes are what its shape asks for.
  absl::StatusOr<ExternalPlace> Find(const ::onnx::TensorProto& tensor, int64_t wanted,
                                     const std::string& place);
  absl::Status Read(const ExternalPlace& at, std::byte* out);
  // The file that Find has opened. REQUIRES: it found something at that location.
  const ReadableFile& FileOf(const ExternalPlace& at) const { return *open_.at(at.location); }

  // That `tensor`'s raw data was left in the model's file; that this is the file.
  void Leave(const ::onnx::TensorProto& tensor, LeftBytes bytes) { left_[&tensor] = bytes; }
  void KeepModel(std::shared_ptr<const ModelBytes> model) { model_ = std::move(model); }
  // nullptr where the message has all there is of `tensor`.
  const LeftBytes* LeftInFile(const ::onnx::TensorProto& tensor) const;
  const ModelBytes& model() const { return *model_; }  // REQUIRES: KeepModel was called
  absl::Status Read(const LeftBytes& bytes, std::byte* out) const;

  std::vector<std::string> locations() const;  // those that were found, sorted

 private:
  absl::StatusOr<const ReadableFile*> Open(const std::string& location, const std::string& place);

  std::vector<std::string> roots_;
  std::shared_ptr<const ModelBytes> model_;
  absl::flat_hash_map<const ::onnx::TensorProto*, LeftBytes> left_;
  std::map<std::string, std::unique_ptr<ReadableFile>> open_;
};

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_EXTERNAL_FILES_H_
