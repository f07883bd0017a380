// The files beside a model in which its tensors' bytes lie.
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

#include "absl/status/statusor.h"
#include "base/file.h"

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

class ExternalFiles {
 public:
  ExternalFiles() = default;  // no roots: every location is refused
  explicit ExternalFiles(const std::string& model_path);

  // What `tensor` says of its bytes, checked against the file; `wanted` bytes are what its shape asks for.
  absl::StatusOr<ExternalPlace> Find(const ::onnx::TensorProto& tensor, int64_t wanted,
                                     const std::string& place);
  absl::Status Read(const ExternalPlace& at, std::byte* out);

  std::vector<std::string> locations() const;  // those that were found, sorted

 private:
  absl::StatusOr<const ReadableFile*> Open(const std::string& location, const std::string& place);

  std::vector<std::string> roots_;
  std::map<std::string, std::unique_ptr<ReadableFile>> open_;
};

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_EXTERNAL_FILES_H_
