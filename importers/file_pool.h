// Many files of which few are open: a checkpoint may have more shards than a process may have descriptors.
//
// The file that was read longest ago is closed when another is needed, and opened again when it is; then it
// must still be the one that it was (TF1205). Thread-safe.
#ifndef TWINFORGE_IMPORTERS_FILE_POOL_H_
#define TWINFORGE_IMPORTERS_FILE_POOL_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file.h"

namespace twinforge {

class FilePool {
 public:
  // At most `most` files are kept open; by default a quarter of the process's descriptors, no more than 128.
  explicit FilePool(size_t most = DescriptorShare());

  // Takes a file that was just opened. Its number counts from 0. REQUIRES: no other thread uses the pool yet.
  int32_t Add(std::unique_ptr<ReadableFile> file);

  // As ReadableFile::ReadAt.
  absl::Status ReadAt(int32_t file, int64_t offset, int64_t count, std::byte* out) const;
  // Fails if any of the files changed since it was added.
  absl::Status CheckUnchanged() const;

  size_t open_files() const;

 private:
  struct Entry {
    std::string path;
    FileIdentity identity;
    std::shared_ptr<const ReadableFile> open;  // null while closed
    std::list<int32_t>::iterator place;        // in recent_, while open
  };
  static size_t DescriptorShare();
  absl::StatusOr<std::shared_ptr<const ReadableFile>> Get(int32_t file) const;
  void Keep(int32_t file, std::shared_ptr<const ReadableFile> open) const;  // REQUIRES: mutex_ is held

  const size_t most_;
  mutable std::mutex mutex_;
  mutable std::vector<Entry> entries_;
  mutable std::list<int32_t> recent_;  // open files, the latest read first
};

}  // namespace twinforge

#endif  // TWINFORGE_IMPORTERS_FILE_POOL_H_
