// The bytes of one model: a file that is read piece by piece, or text in memory.
#ifndef TWINFORGE_ONNX_MODEL_BYTES_H_
#define TWINFORGE_ONNX_MODEL_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file.h"

namespace twinforge {

class ModelBytes {
 public:
  static absl::StatusOr<std::shared_ptr<const ModelBytes>> Open(const std::string& path);
  static std::shared_ptr<const ModelBytes> Of(std::string bytes, const std::string& name);

  const std::string& name() const { return name_; }
  int64_t size() const;
  // Exactly `count` bytes at `offset`. REQUIRES: of text in memory, it has them.
  absl::Status ReadAt(int64_t offset, int64_t count, std::byte* out) const;
  absl::Status CheckUnchanged() const;
  const ReadableFile* file() const { return file_.get(); }  // nullptr: in memory
  const std::string& memory() const { return memory_; }     // empty: a file

 private:
  std::string name_;
  std::unique_ptr<ReadableFile> file_;
  std::string memory_;
};

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_MODEL_BYTES_H_
