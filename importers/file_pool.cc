#include "importers/file_pool.h"

#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "base/diagnostic.h"
#include "base/status_macros.h"

namespace twinforge {
namespace {

constexpr size_t kMostOpen = 128;

}  // namespace

size_t FilePool::DescriptorShare() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMostOpen;
  return std::clamp<size_t>(limit.rlim_cur / 4, 1, kMostOpen);
}

FilePool::FilePool(size_t most) : most_(std::max<size_t>(1, most)) {}

int32_t FilePool::Add(std::unique_ptr<ReadableFile> file) {
  const auto number = static_cast<int32_t>(entries_.size());
  entries_.push_back({file->path(), file->identity(), nullptr, recent_.end()});
  std::lock_guard<std::mutex> lock(mutex_);
  Keep(number, std::move(file));
  return number;
}

void FilePool::Keep(int32_t file, std::shared_ptr<const ReadableFile> open) const {
  recent_.push_front(file);
  entries_[file].open = std::move(open);
  entries_[file].place = recent_.begin();
  while (recent_.size() > most_) {
    entries_[recent_.back()].open = nullptr;  // closed when its last reader is done
    recent_.pop_back();
  }
}

absl::StatusOr<std::shared_ptr<const ReadableFile>> FilePool::Get(int32_t file) const {
  std::lock_guard<std::mutex> lock(mutex_);
  Entry& entry = entries_[file];
  if (entry.open != nullptr) {
    recent_.splice(recent_.begin(), recent_, entry.place);
    return entry.open;
  }
  TWIN_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> opened, ReadableFile::Open(entry.path));
  TWIN_RETURN_IF_ERROR(CheckSameFile(entry.path, entry.identity, opened->identity()));
  Keep(file, std::move(opened));
  return entry.open;
}

absl::Status FilePool::ReadAt(int32_t file, int64_t offset, int64_t count, std::byte* out) const {
  TWIN_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> open, Get(file));
  return open->ReadAt(offset, count, out);
}

absl::Status FilePool::CheckUnchanged() const {
  for (const Entry& entry : entries_) TWIN_RETURN_IF_ERROR(CheckUnchangedFile(entry.path, entry.identity));
  return absl::OkStatus();
}

size_t FilePool::open_files() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return recent_.size();
}

}  // namespace twinforge
