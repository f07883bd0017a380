// Files to read: positioned reads, no mapping, and a note of what the file was when opened.
//
// A mapped file that shrinks kills the process with a signal, and its pages count against
// our memory; a positioned read fails with a status. So reads are positioned.
#ifndef TWINFORGE_BASE_FILE_H_
#define TWINFORGE_BASE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace twinforge {

// Size, modification time and inode: enough to notice that a file was replaced or cut.
struct FileIdentity {
  int64_t size = 0;
  int64_t mtime_ns = 0;
  int64_t inode = 0;
  bool operator==(const FileIdentity&) const = default;
};

// A regular file opened for reading. Thread-safe. Devices, FIFOs and folders are refused.
class ReadableFile {
 public:
  static absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path);
  ~ReadableFile();
  ReadableFile(const ReadableFile&) = delete;
  ReadableFile& operator=(const ReadableFile&) = delete;

  const std::string& path() const { return path_; }
  const FileIdentity& identity() const { return identity_; }  // as it was when opened
  int64_t size() const { return identity_.size; }

  // Exactly `count` bytes at `offset`, or a diagnostic (TF1204 when the file is shorter).
  absl::Status ReadAt(int64_t offset, int64_t count, std::byte* out) const;
  // Fails (TF1205) if the file on disk is no longer the one that was opened.
  absl::Status CheckUnchanged() const;

 private:
  ReadableFile() = default;
  int fd_ = -1;
  std::string path_;
  FileIdentity identity_;
};

// Fails (TF1205) where the file at `path`, found as `now`, is not the one that was `then`.
absl::Status CheckSameFile(const std::string& path, const FileIdentity& then, const FileIdentity& now);
// The same for what lies at `path` now.
absl::Status CheckUnchangedFile(const std::string& path, const FileIdentity& then);

// A whole small text file. More than `limit` bytes is a diagnostic, found before allocation.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, int64_t limit = 64 << 20);

}  // namespace twinforge

#endif  // TWINFORGE_BASE_FILE_H_
