#include "exporters/new_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "exporters/overflow.h"
#include "exporters/tiles.h"

namespace twinforge {
namespace {

constexpr int64_t kTileShare = int64_t{64} << 20, kTilePreferred = int64_t{4} << 20;

bool IsZero(const std::byte* bytes, int64_t count) {
  return count == 0 ||
         (bytes[0] == std::byte{0} && memcmp(bytes, bytes + 1, static_cast<size_t>(count - 1)) == 0);
}

// A source file, opened once more for calls that want a descriptor, and seen to be the one that was read.
class Source {
 public:
  static absl::StatusOr<std::unique_ptr<Source>> Open(const ReadableFile& file) {
    auto source = std::make_unique<Source>();
    source->fd_ = open(file.path().c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat info;
    if (source->fd_ < 0 || fstat(source->fd_, &info) != 0) {
      return Error(1205, file.path(), absl::StrCat("was there when opened, and now: ", strerror(errno)));
    }
    const FileIdentity now{info.st_size, int64_t{info.st_mtim.tv_sec} * 1000000000 + info.st_mtim.tv_nsec,
                           static_cast<int64_t>(info.st_ino)};
    TWIN_RETURN_IF_ERROR(CheckSameFile(file.path(), file.identity(), now));
    return source;
  }
  ~Source() {
    if (fd_ >= 0) close(fd_);
  }

  int fd() const { return fd_; }
  // The first run of bytes at or after `at` that is no hole, cut off at `end`; empty where there is none.
  std::pair<int64_t, int64_t> NextData(int64_t at, int64_t end) const {
    const int64_t begin = lseek(fd_, at, SEEK_DATA);
    if (begin < 0)
      return errno == ENXIO ? std::pair(end, end) : std::pair(at, end);  // or no such notion here
    const int64_t stop = lseek(fd_, begin, SEEK_HOLE);
    return {std::min(begin, end), stop < 0 ? end : std::min(stop, end)};
  }

 private:
  int fd_ = -1;
};

class Writer {
 public:
  Writer(FileSystem& files, const TensorReader* reader) : files_(files), reader_(reader) {}

  absl::Status WriteFile(const NewFile& file, const std::string& path) {
    const int fd = files_.Open(path, FileSystem::OpenMode::kCreate);
    if (fd < 0) return FileError(fd, path, "create");
    const auto close = absl::MakeCleanup([&] { files_.Close(fd); });
    const int sized = files_.Truncate(fd, file.size);
    if (sized < 0) return FileError(sized, path, "set the length");
    for (const Stretch& stretch : file.stretches) {
      absl::Status status;
      if (stretch.text != nullptr) {
        const auto* text = reinterpret_cast<const std::byte*>(stretch.text->data()) + stretch.from;
        status = WriteAll(fd, path, text, stretch.length, stretch.offset);
        written_.text += stretch.length;
      } else if (stretch.program != nullptr) {
        status = WriteProgram(fd, path, stretch);
      } else {
        status = Copy(fd, path, stretch);
      }
      TWIN_RETURN_IF_ERROR(status);
    }
    const int synced = files_.Sync(fd);
    return synced < 0 ? FileError(synced, path, "sync") : absl::OkStatus();
  }

  // Nothing that was read changed since it was opened.
  absl::Status CheckSources() const {
    for (const auto& [file, source] : sources_) TWIN_RETURN_IF_ERROR(file->CheckUnchanged());
    return reader_ == nullptr ? absl::OkStatus() : reader_->CheckUnchanged();
  }
  const WrittenBytes& written() const { return written_; }

 private:
  absl::Status WriteAll(int fd, const std::string& path, const std::byte* data, int64_t count,
                        int64_t offset) {
    for (int64_t done = 0; done < count;) {
      const int64_t wrote = files_.Write(fd, data + done, count - done, offset + done);
      if (wrote <= 0) return FileError(wrote == 0 ? -EIO : wrote, path, "write");
      done += wrote;
    }
    return absl::OkStatus();
  }

  absl::Status Copy(int fd, const std::string& path, const Stretch& stretch) {
    std::unique_ptr<Source>& source = sources_[stretch.file];
    if (source == nullptr) {
      TWIN_ASSIGN_OR_RETURN(source, Source::Open(*stretch.file));
    }
    const int64_t end = stretch.from + stretch.length;
    for (int64_t at = stretch.from; at < end;) {
      const auto [begin, stop] = source->NextData(at, end);
      written_.holes += begin - at;
      for (at = begin; at < stop;) {
        const int64_t copied =
            files_.CopyRange(source->fd(), at, fd, stretch.offset + at - stretch.from, stop - at);
        if (copied < 0) return FileError(copied, path, "copy");
        if (copied == 0) return Error(1204, stretch.file->path(), absl::StrCat("ends at byte ", at));
        at += copied;
        written_.copied += copied;
      }
    }
    return absl::OkStatus();
  }

  absl::Status WriteProgram(int fd, const std::string& path, const Stretch& stretch) {
    const WeightPtr& program = stretch.program;
    TWIN_CHECK(reader_ != nullptr, "programs have what they read");
    const int64_t width = ElementBytes(program->dtype());
    const bool may_overflow = MayOverflow(program);
    OutputTensor named;
    named.name = stretch.name;
    named.program = program;
    StatCache stats;
    TWIN_RETURN_IF_ERROR(PrepareStats(program, *reader_, scratch_, stats));
    const Tiling tiling = Cut(program, kTileShare, kTilePreferred);
    for (int64_t tile = 0; tile < tiling.tiles; ++tile) {
      int64_t first = 0;
      const Box box = TileBox(program, tiling, tile, &first);
      const int64_t bytes = ElementCount(box.size) * width;
      if (static_cast<int64_t>(tile_.size()) < bytes) tile_.resize(static_cast<size_t>(bytes));
      TWIN_RETURN_IF_ERROR(Read(program, box, *reader_, tile_.data(), scratch_, &stats));
      if (may_overflow) TWIN_RETURN_IF_ERROR(CheckRange(named, box, tile_.data(), *reader_, &stats));
      written_.made += bytes;
      if (IsZero(tile_.data(), bytes)) continue;  // as the file is already, without a block
      TWIN_RETURN_IF_ERROR(WriteAll(fd, path, tile_.data(), bytes, stretch.offset + first * width));
    }
    return absl::OkStatus();
  }

  FileSystem& files_;
  const TensorReader* reader_;
  std::map<const ReadableFile*, std::unique_ptr<Source>> sources_;
  Scratch scratch_;
  std::vector<std::byte> tile_;
  WrittenBytes written_;
};

// The folders that files lie in, below the one that is made: outer ones before inner ones.
std::set<std::string> FoldersOf(const std::vector<NewFile>& plan) {
  std::set<std::string> folders;
  for (const NewFile& file : plan) {
    for (size_t slash = file.name.find('/'); slash != std::string::npos;
         slash = file.name.find('/', slash + 1)) {
      folders.insert(file.name.substr(0, slash));
    }
  }
  return folders;
}

absl::Status SyncFolder(FileSystem& files, const std::string& path) {
  const int fd = files.Open(path, FileSystem::OpenMode::kFolder);
  if (fd < 0) return FileError(fd, path, "open");
  const int synced = files.Sync(fd);
  files.Close(fd);
  return synced < 0 ? FileError(synced, path, "sync") : absl::OkStatus();
}

std::string FolderAround(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  const size_t slash = end == std::string::npos ? end : path.rfind('/', end);
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

}  // namespace

absl::StatusOr<WrittenBytes> WriteNewFiles(FileSystem& files, const std::vector<NewFile>& plan,
                                           const TensorReader* reader, const std::string& out) {
  struct stat there;
  if (lstat(out.c_str(), &there) == 0)
    return Error(1608, out, "exists", "name another folder, or remove it first");
  std::string partial = out;
  while (partial.size() > 1 && partial.back() == '/') partial.pop_back();
  partial += ".partial";
  const int made = files.MakeFolder(partial);
  if (made == -EEXIST) {
    return Error(1608, partial, "the folder exists: a run before this one was cut short", "remove it first");
  }
  if (made < 0) return FileError(made, partial, "create");
  const std::set<std::string> folders = FoldersOf(plan);
  const auto inside = [&](const std::string& name) { return absl::StrCat(partial, "/", name); };
  auto drop = absl::MakeCleanup([&] {
    for (const NewFile& file : plan) files.Remove(inside(file.name));
    for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder)
      files.RemoveFolder(inside(*folder));
    files.RemoveFolder(partial);
  });
  for (const std::string& folder : folders) {
    const int below = files.MakeFolder(inside(folder));
    if (below < 0) return FileError(below, inside(folder), "create");
  }
  Writer writer(files, reader);
  for (const NewFile& file : plan) TWIN_RETURN_IF_ERROR(writer.WriteFile(file, inside(file.name)));
  TWIN_RETURN_IF_ERROR(writer.CheckSources());
  for (const std::string& folder : folders) TWIN_RETURN_IF_ERROR(SyncFolder(files, inside(folder)));
  TWIN_RETURN_IF_ERROR(SyncFolder(files, partial));
  const int renamed = files.Rename(partial, out);
  if (renamed == -EEXIST) return Error(1608, out, "exists", "name another folder, or remove it first");
  if (renamed < 0) return FileError(renamed, out, "name");
  std::move(drop).Cancel();
  TWIN_RETURN_IF_ERROR(SyncFolder(files, FolderAround(out)));
  return writer.written();
}

}  // namespace twinforge
