#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"

namespace twinforge {
namespace {

FileIdentity IdentityOf(const struct stat& info) {
  return {static_cast<int64_t>(info.st_size),
          static_cast<int64_t>(info.st_mtim.tv_sec) * 1000000000 + info.st_mtim.tv_nsec,
          static_cast<int64_t>(info.st_ino)};
}

absl::string_view KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "a special file";
}

absl::Status OpenFailed(const std::string& path, int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return Error(1202, path, "no such file");
    case ELOOP:
      return Error(1202, path, "symbolic links that lead in a circle");
    case EMFILE:
    case ENFILE:
      return Error(1208, path, "too many open files", "raise the limit, for example with `ulimit -n 4096`");
    case ENXIO:
      return Error(1203, path, "is a socket or a device, not a regular file");
    default:
      return Error(1202, path, absl::StrCat("cannot be opened: ", std::strerror(error)));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ReadableFile>> ReadableFile::Open(const std::string& path) {
  // Without O_NONBLOCK a FIFO would hold us until somebody writes; a regular file ignores it.
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) return OpenFailed(path, errno);
  std::unique_ptr<ReadableFile> file(new ReadableFile);  // private constructor
  file->fd_ = fd;
  file->path_ = path;
  struct stat info;
  if (::fstat(fd, &info) != 0) return OpenFailed(path, errno);
  if (!S_ISREG(info.st_mode)) {
    return Error(1203, path, absl::StrCat("is ", KindOf(info.st_mode), ", not a regular file"));
  }
  file->identity_ = IdentityOf(info);
  return file;
}

ReadableFile::~ReadableFile() {
  if (fd_ >= 0) ::close(fd_);
}

absl::Status ReadableFile::ReadAt(int64_t offset, int64_t count, std::byte* out) const {
  int64_t done = 0;
  while (done < count) {
    const ssize_t got = ::pread(fd_, out + done, static_cast<size_t>(count - done), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return Error(1208, path_,
                   absl::StrCat("reading ", count, " bytes at byte ", offset, ": ", std::strerror(errno)));
    }
    if (got == 0) {
      return Error(1204, path_,
                   absl::StrCat("bytes ", offset, " to ", offset + count,
                                " were wanted, but the file ends at byte ", offset + done),
                   "the file was cut short; fetch it again");
    }
    done += got;
  }
  return absl::OkStatus();
}

absl::Status ReadableFile::CheckUnchanged() const { return CheckUnchangedFile(path_, identity_); }

absl::Status CheckUnchangedFile(const std::string& path, const FileIdentity& then) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) {
    return Error(1205, path, absl::StrCat("was there when opened, and now: ", std::strerror(errno)));
  }
  return CheckSameFile(path, then, IdentityOf(info));
}

absl::Status CheckSameFile(const std::string& path, const FileIdentity& then, const FileIdentity& now) {
  if (now == then) return absl::OkStatus();
  const char* what = now.inode != then.inode ? "was replaced by another file"
                     : now.size != then.size ? "changed its size"
                                             : "was written to";
  return Error(1205, path, absl::StrCat(what, " while it was being read"),
               "wait until whatever writes it has finished, then run again");
}

absl::StatusOr<std::string> ReadTextFile(const std::string& path, int64_t limit) {
  TWIN_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, ReadableFile::Open(path));
  if (file->size() > limit) {
    return Error(1207, path,
                 absl::StrCat("has ", file->size(), " bytes, and at most ", limit, " are accepted here"));
  }
  std::string text(static_cast<size_t>(file->size()), '\0');
  TWIN_RETURN_IF_ERROR(file->ReadAt(0, file->size(), reinterpret_cast<std::byte*>(text.data())));
  return text;
}

}  // namespace twinforge
