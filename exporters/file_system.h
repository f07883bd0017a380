// Every call to the operating system that a forge makes to write, behind one seam.
//
// Two reasons. Tests count the calls and make the k-th of them fail, write short or end
// the process, for every k, so that "a killed run resumes" and "a full disk leaves
// nothing behind" are shown and not believed. And a sink that discards (`--out
// /dev/null`) lets a 300 GB checkpoint be streamed on a small disk.
//
// The calls are as thin as the system's own: they return what the system returned, or
// -errno. Retrying short writes, naming files in diagnostics and choosing exit codes is
// the caller's affair (output_dir.h), so that faults travel through that code.
#ifndef TWINFORGE_EXPORTERS_FILE_SYSTEM_H_
#define TWINFORGE_EXPORTERS_FILE_SYSTEM_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace twinforge {

class FileSystem {
 public:
  enum class OpenMode {
    kCreate,  // reading and writing; made if absent, content kept
    kAppend,  // the same; every Write goes to the end and its offset is ignored
    kDirect,  // an existing file, writing past the page cache: offset, count and address in whole blocks
    kFolder,  // an existing folder, for Lock and Sync
  };

  virtual ~FileSystem() = default;
  // Each returns a value >= 0, or -errno.
  virtual int Open(const std::string& path, OpenMode mode);  // a descriptor
  virtual int Close(int fd);
  virtual int64_t Write(int fd, const std::byte* data, int64_t count, int64_t offset);  // may be short
  virtual int64_t Read(int fd, std::byte* data, int64_t count, int64_t offset);         // may be short
  // Bytes of one open file to another, without passing through here where the system can; may be short.
  virtual int64_t CopyRange(int from, int64_t from_offset, int to, int64_t to_offset, int64_t count);
  virtual int Allocate(int fd, int64_t bytes);  // blocks for [0, bytes), and that length
  virtual int Truncate(int fd, int64_t bytes);
  virtual int StartWriteback(int fd, int64_t offset, int64_t count);  // a wish: begin, do not wait
  virtual int Sync(int fd);                                           // file or folder
  virtual int Lock(int fd);  // exclusive, at once or -EWOULDBLOCK; ends with the descriptor
  virtual int MakeFolder(const std::string& path);
  virtual int Rename(const std::string& from, const std::string& to);  // -EEXIST if `to` exists
  virtual int Remove(const std::string& path);                         // a file
  virtual int RemoveFolder(const std::string& path);                   // an empty one
  // Whether a change of the file at `path` always shows in its change time (ctime). Nobody can set that,
  // unlike the modification time; but only the kernel's own file systems keep it: one over a network or in
  // user space may say anything.
  virtual bool KeepsChangeTimes(const std::string& path);
  virtual int64_t FreeBytes(const std::string& path);  // that this user may still write beside `path`
};

// The operating system's. RLIMIT_FSIZE becomes -EFBIG and no signal.
FileSystem& SystemFiles();

// Takes everything and keeps nothing: writes cost nothing, reads find nothing.
FileSystem& DiscardedFiles();

// A failed call as a diagnostic: what was full or refused (TF1605, exit 5), what may pass
// (TF1606, exit 6), what the user named wrongly (TF1607, exit 2). `error` is -errno.
absl::Status FileError(int64_t error, absl::string_view path, absl::string_view doing);

}  // namespace twinforge

#endif  // TWINFORGE_EXPORTERS_FILE_SYSTEM_H_
