#include "exporters/file_system.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"

namespace twinforge {
namespace {

// The largest count that one read or write call of Linux moves is 2 GiB minus a page.
constexpr int64_t kLargestCall = int64_t{1} << 30;
// Where bytes pass through memory on their way from file to file.
constexpr int64_t kCopiedPiece = int64_t{1} << 20;

int64_t OrErrno(int64_t result) { return result < 0 ? -errno : result; }

class Discard : public FileSystem {
 public:
  int Open(const std::string&, OpenMode) override { return 0; }
  int Close(int) override { return 0; }
  int64_t Write(int, const std::byte*, int64_t count, int64_t) override { return count; }
  int64_t Read(int, std::byte*, int64_t, int64_t) override { return 0; }
  int64_t CopyRange(int, int64_t, int, int64_t, int64_t count) override { return count; }
  int Allocate(int, int64_t) override { return 0; }
  int Truncate(int, int64_t) override { return 0; }
  int StartWriteback(int, int64_t, int64_t) override { return 0; }
  int Sync(int) override { return 0; }
  int Lock(int) override { return 0; }
  int MakeFolder(const std::string&) override { return 0; }
  int Rename(const std::string&, const std::string&) override { return 0; }
  int Remove(const std::string&) override { return 0; }
  int RemoveFolder(const std::string&) override { return 0; }
  bool KeepsChangeTimes(const std::string&) override { return false; }  // nothing is kept to resume from
  int64_t FreeBytes(const std::string&) override { return std::numeric_limits<int64_t>::max(); }
};

}  // namespace

int FileSystem::Open(const std::string& path, OpenMode mode) {
  int flags = O_CLOEXEC;
  switch (mode) {
    case OpenMode::kCreate:
      flags |= O_RDWR | O_CREAT | O_NOFOLLOW;
      break;
    case OpenMode::kAppend:
      flags |= O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW;
      break;
    case OpenMode::kDirect:
      flags |= O_WRONLY | O_DIRECT | O_NOFOLLOW;
      break;
    case OpenMode::kFolder:
      flags |= O_RDONLY | O_DIRECTORY;
      break;
  }
  return static_cast<int>(OrErrno(open(path.c_str(), flags, 0644)));
}

int FileSystem::Close(int fd) { return static_cast<int>(OrErrno(close(fd))); }

int64_t FileSystem::Write(int fd, const std::byte* data, int64_t count, int64_t offset) {
  return OrErrno(pwrite(fd, data, std::min(count, kLargestCall), offset));
}

int64_t FileSystem::Read(int fd, std::byte* data, int64_t count, int64_t offset) {
  return OrErrno(pread(fd, data, std::min(count, kLargestCall), offset));
}

int64_t FileSystem::CopyRange(int from, int64_t from_offset, int to, int64_t to_offset, int64_t count) {
  off64_t in = from_offset, out = to_offset;
  const int64_t copied =
      OrErrno(copy_file_range(from, &in, to, &out, static_cast<size_t>(std::min(count, kLargestCall)), 0));
  if (copied != -EXDEV && copied != -EINVAL && copied != -EOPNOTSUPP && copied != -ENOSYS) return copied;
  std::vector<std::byte> piece(static_cast<size_t>(std::min(count, kCopiedPiece)));
  const int64_t got = OrErrno(pread(from, piece.data(), piece.size(), from_offset));
  return got <= 0 ? got : Write(to, piece.data(), got, to_offset);
}

int FileSystem::Allocate(int fd, int64_t bytes) {
  int64_t result = bytes == 0 ? 0 : OrErrno(fallocate(fd, 0, 0, bytes));
  // Some file systems can't reserve; the length is set all the same, and a full disk shows when written.
  if (result == -EOPNOTSUPP || result == -ENOSYS) return Truncate(fd, bytes);
  return static_cast<int>(result);
}

int FileSystem::Truncate(int fd, int64_t bytes) { return static_cast<int>(OrErrno(ftruncate(fd, bytes))); }

int FileSystem::StartWriteback(int fd, int64_t offset, int64_t count) {
  return static_cast<int>(OrErrno(sync_file_range(fd, offset, count, SYNC_FILE_RANGE_WRITE)));
}

int FileSystem::Sync(int fd) { return static_cast<int>(OrErrno(fsync(fd))); }

int FileSystem::Lock(int fd) { return static_cast<int>(OrErrno(flock(fd, LOCK_EX | LOCK_NB))); }

int FileSystem::MakeFolder(const std::string& path) {
  return static_cast<int>(OrErrno(mkdir(path.c_str(), 0755)));
}

int FileSystem::Rename(const std::string& from, const std::string& to) {
  int64_t result = OrErrno(renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE));
  if (result != -EINVAL && result != -ENOSYS) return static_cast<int>(result);
  // A file system without the flag: look first. rename() itself replaces only an empty folder.
  struct stat there;
  if (lstat(to.c_str(), &there) == 0) return -EEXIST;
  return static_cast<int>(OrErrno(rename(from.c_str(), to.c_str())));
}

int FileSystem::Remove(const std::string& path) { return static_cast<int>(OrErrno(unlink(path.c_str()))); }

int FileSystem::RemoveFolder(const std::string& path) {
  return static_cast<int>(OrErrno(rmdir(path.c_str())));
}

bool FileSystem::KeepsChangeTimes(const std::string& path) {
  // statfs(2): ext2 to ext4, xfs, btrfs, f2fs, bcachefs, zfs, tmpfs, and overlayfs, which has those below it.
  static constexpr uint32_t kKernelsOwn[] = {0xEF53,     0x58465342, 0x9123683E, 0xF2F52010,
                                             0xCA451A4E, 0x2FC12FC1, 0x01021994, 0x794C7630};
  struct statfs info;
  if (statfs(path.c_str(), &info) != 0) return false;
  const auto type = static_cast<uint32_t>(info.f_type);
  return std::find(std::begin(kKernelsOwn), std::end(kKernelsOwn), type) != std::end(kKernelsOwn);
}

int64_t FileSystem::FreeBytes(const std::string& path) {
  struct statvfs info;
  int64_t result = OrErrno(statvfs(path.c_str(), &info));
  if (result < 0) return result;
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

FileSystem& SystemFiles() {
  static FileSystem* const files = [] {
    signal(SIGXFSZ, SIG_IGN);
    return new FileSystem;
  }();
  return *files;
}

FileSystem& DiscardedFiles() {
  static Discard* const files = new Discard;
  return *files;
}

absl::Status FileError(int64_t error, absl::string_view path, absl::string_view doing) {
  int number = static_cast<int>(-error);
  std::string message = absl::StrCat(doing, ": ", strerror(number));
  switch (number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return Error(1605, path, message, "make room and run the same command again");
    case EACCES:
    case EPERM:
    case EROFS:
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case EEXIST:
    case ELOOP:
    case ENAMETOOLONG:
    case EINVAL:
      return Error(1607, path, message, "name a folder where this user may write");
    default:
      return Error(1606, path, message, "run the same command again");
  }
}

}  // namespace twinforge
