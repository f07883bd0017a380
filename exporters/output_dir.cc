#include "exporters/output_dir.h"

#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/diagnostic.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/status_macros.h"

namespace twinforge {
namespace {

constexpr absl::string_view kJournal = ".journal";
constexpr int64_t kCopyBytes = 1 << 20;
constexpr int64_t kWorthWriteback = 1 << 18;

int64_t RoundDown(int64_t value) { return value / OutputDir::kBlock * OutputDir::kBlock; }

bool Exists(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0;
}

// Length of a regular file, or -1.
int64_t LengthOf(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) ? info.st_size : -1;
}

int64_t BlocksOf(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0 ? int64_t{info.st_blocks} * 512 : 0;
}

std::string WithoutSlash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string ParentOf(const std::string& path) {
  size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string Checked(absl::string_view payload) {
  uint64_t hash = XXH3_64bits(payload.data(), payload.size());
  return absl::StrCat(absl::Hex(hash, absl::kZeroPad16), " ", payload, "\n");
}

// The payload of a journal line, or "" where its checksum disagrees.
absl::string_view Unchecked(absl::string_view line) {
  if (line.size() < 18 || line[16] != ' ') return "";
  absl::string_view payload = line.substr(17);
  uint64_t hash = XXH3_64bits(payload.data(), payload.size());
  return absl::StrCat(absl::Hex(hash, absl::kZeroPad16)) == line.substr(0, 16) ? payload : "";
}

std::string PlanLine(const OutputDir::Request& request) {
  return absl::StrCat("plan ", request.digest, " ", request.stamp, " ", request.changes);
}

}  // namespace

OutputDir::OutputDir(FileSystem& files, const Request& request) : files_(files), request_(request) {
  request_.out = WithoutSlash(request.out);
  partial_ = absl::StrCat(request_.out, ".partial-", request_.digest.substr(0, 12));
}

OutputDir::~OutputDir() {
  for (const auto& [name, fd] : direct_) files_.Close(fd);
  for (const auto& [name, fd] : open_) files_.Close(fd);
  if (journal_fd_ >= 0) files_.Close(journal_fd_);
  if (folder_fd_ >= 0) files_.Close(folder_fd_);
}

std::string OutputDir::PathOf(absl::string_view name) const { return absl::StrCat(partial_, "/", name); }

absl::StatusOr<std::unique_ptr<OutputDir>> OutputDir::Open(FileSystem& files, const Request& request) {
  std::unique_ptr<OutputDir> dir(new OutputDir(files, request));
  if (&files == &DiscardedFiles()) return dir;
  TWIN_RETURN_IF_ERROR(dir->CheckFresh());
  if (dir->published_) return dir;
  TWIN_RETURN_IF_ERROR(dir->CheckParent());
  TWIN_RETURN_IF_ERROR(dir->EnterFolder());
  absl::Status ready = dir->ReadJournal();
  if (ready.ok()) ready = dir->CheckRoom();
  if (ready.ok()) return dir;
  return dir->Abandon(ready);
}

// The user named `out`, so that is what a missing folder above it is said of, not the folder it is made in.
absl::Status OutputDir::CheckParent() {
  const std::string parent = ParentOf(request_.out);
  std::error_code failed;
  if (std::filesystem::is_directory(parent, failed)) return absl::OkStatus();
  const bool there = Exists(parent);
  return Error(
      1607, request_.out,
      absl::StrCat("it would be made in ", parent, there ? ", which is no folder" : ", which does not exist"),
      there ? "name a folder where this user may write" : absl::StrCat("make that first: mkdir -p ", parent));
}

// `out` must not exist, but for the moment between rename and the journal's removal.
absl::Status OutputDir::CheckFresh() {
  if (request_.out.empty()) return Error(1607, "", "the name of the output folder is empty");
  if (!Exists(request_.out)) return absl::OkStatus();
  std::string journal = absl::StrCat(request_.out, "/", kJournal);
  if (Exists(journal)) {
    absl::StatusOr<std::string> text = ReadTextFile(journal);
    std::string first = text.ok() ? text->substr(0, text->find('\n')) : "";
    if (!request_.changes.empty() && Unchecked(first) == PlanLine(request_)) {
      int64_t result = files_.Remove(journal);
      if (result < 0) return FileError(result, journal, "removing the journal");
      published_ = true;
      return absl::OkStatus();
    }
  }
  return Error(1608, request_.out, "it exists already", "choose another name, or remove it");
}

absl::Status OutputDir::EnterFolder() {
  int64_t made = files_.MakeFolder(partial_);
  if (made < 0 && made != -EEXIST) return FileError(made, request_.out, "making the folder beside it");
  folder_fd_ = files_.Open(partial_, FileSystem::OpenMode::kFolder);
  if (folder_fd_ < 0) return FileError(folder_fd_, partial_, "opening the folder");
  int64_t locked = files_.Lock(folder_fd_);
  if (locked == -EWOULDBLOCK) {
    return Error(1609, partial_, "another run is writing this twin", "wait for it, or give another --out");
  }
  if (locked < 0) return FileError(locked, partial_, "locking the folder");
  // Between our open and our lock its owner may have published it: then the lock is on OUT.
  if (!Exists(partial_) || Exists(request_.out)) {
    return Error(1609, partial_, "another run has just finished this twin", "look at the output folder");
  }
  return absl::OkStatus();
}

// The same plan from the same files. Whether these files still have the same bytes is told by their change
// times; where those differ, or are not kept, it is not known.
bool OutputDir::IsOfThisPlan(absl::string_view payload) {
  const std::string line = PlanLine(request_);
  const size_t files = line.size() - request_.changes.size();
  if (payload.substr(0, files) != line.substr(0, files)) return false;
  doubted_ = payload != line || request_.changes.empty();
  return true;
}

bool OutputDir::Recall(absl::string_view payload) {
  if (absl::StartsWith(payload, "range ")) {
    std::vector<absl::string_view> words = absl::StrSplit(payload, absl::MaxSplits(' ', 4));
    int64_t offset = 0;
    int64_t count = 0;
    uint64_t hash = 0;
    if (words.size() != 5 || !absl::SimpleAtoi(words[1], &offset) || !absl::SimpleAtoi(words[2], &count) ||
        !absl::SimpleHexAtoi(words[3], &hash)) {
      return false;
    }
    ranges_[std::string(words[4])][{offset, count}] = hash;
    return true;
  }
  if (absl::StartsWith(payload, "file ")) {
    std::vector<absl::string_view> words = absl::StrSplit(payload, absl::MaxSplits(' ', 4));
    FinishedFile file;
    if (words.size() != 5 || !absl::SimpleAtoi(words[1], &file.bytes)) return false;
    file.sha256 = std::string(words[2]);
    if (words[3] != "-") file.parts = absl::StrSplit(words[3], ',');
    ranges_.erase(std::string(words[4]));  // a finished file needs no ranges
    finished_[std::string(words[4])] = std::move(file);
    return true;
  }
  return false;
}

// Lines are believed up to the first that is torn, strange, or of another plan or source.
absl::Status OutputDir::ReadJournal() {
  std::string path = PathOf(kJournal);
  std::string text;
  if (Exists(path)) {
    TWIN_ASSIGN_OR_RETURN(text, ReadTextFile(path, int64_t{1} << 30));
  }
  size_t valid = 0;
  bool first = true;
  while (true) {
    size_t end = text.find('\n', valid);
    if (end == std::string::npos) break;
    absl::string_view payload = Unchecked(absl::string_view(text).substr(valid, end - valid));
    if (first ? !IsOfThisPlan(payload) : !Recall(payload)) break;
    first = false;
    valid = end + 1;
  }
  resumable_ = !ranges_.empty() || !finished_.empty();
  journal_fd_ = files_.Open(path, FileSystem::OpenMode::kAppend);
  if (journal_fd_ < 0) return FileError(journal_fd_, path, "opening the journal");
  int64_t cut = valid == text.size() ? 0 : files_.Truncate(journal_fd_, static_cast<int64_t>(valid));
  if (cut < 0) return FileError(cut, path, "cutting the journal");
  return valid == 0 ? Note(PlanLine(request_)) : absl::OkStatus();
}

absl::Status OutputDir::CheckRoom() {
  int64_t room = files_.FreeBytes(partial_);
  if (room < 0) return FileError(room, partial_, "asking for free space");
  int64_t held = 0;
  for (const auto& [name, ranges] : ranges_) held += BlocksOf(PathOf(name));
  for (const auto& [name, file] : finished_) {
    if (ranges_.count(name) == 0) held += BlocksOf(PathOf(name));
  }
  int64_t needed = request_.bytes - held;
  if (needed <= room) return absl::OkStatus();
  return Error(1605, partial_, absl::StrCat("the twin needs ", needed, " bytes, the disk has ", room),
               "make room, or name a folder on another disk");
}

absl::Status OutputDir::SyncFolder(const std::string& path) {
  int fd = files_.Open(path, FileSystem::OpenMode::kFolder);
  if (fd < 0) return FileError(fd, path, "opening the folder");
  int64_t synced = files_.Sync(fd);
  files_.Close(fd);
  return synced < 0 ? FileError(synced, path, "syncing the folder") : absl::OkStatus();
}

absl::Status OutputDir::Note(absl::string_view payload) {
  if (journal_fd_ < 0) return absl::OkStatus();
  std::string line = Checked(payload);
  std::lock_guard<std::mutex> lock(mutex_);
  return WriteAt(journal_fd_, kJournal, 0, reinterpret_cast<const std::byte*>(line.data()),
                 static_cast<int64_t>(line.size()));
}

absl::StatusOr<int> OutputDir::StartFile(const std::string& name, int64_t bytes) {
  std::string path = PathOf(name);
  int fd = files_.Open(path, FileSystem::OpenMode::kCreate);
  if (fd < 0) return FileError(fd, path, "making the file");
  if (&files_ != &DiscardedFiles()) {
    std::lock_guard<std::mutex> lock(mutex_);
    open_[name] = fd;
  }
  if (LengthOf(path) > bytes) {
    int64_t cut = files_.Truncate(fd, bytes);
    if (cut < 0) return FileError(cut, path, "cutting the file");
  }
  int64_t allocated = files_.Allocate(fd, bytes);
  if (allocated < 0) return FileError(allocated, path, absl::StrCat("reserving ", bytes, " bytes"));
  if (bytes < request_.direct || &files_ == &DiscardedFiles()) return fd;
  int direct = files_.Open(path, FileSystem::OpenMode::kDirect);
  if (direct >= 0) {  // some file systems have none
    std::lock_guard<std::mutex> lock(mutex_);
    direct_[name] = direct;
  }
  return fd;
}

absl::Status OutputDir::WriteAt(int fd, absl::string_view name, int64_t offset, const std::byte* data,
                                int64_t count) {
  while (count > 0) {
    int64_t written = files_.Write(fd, data, count, offset);
    if (written == -EINTR) continue;
    if (written <= 0) return FileError(written == 0 ? -EIO : written, PathOf(name), "writing");
    data += written;
    offset += written;
    count -= written;
  }
  return absl::OkStatus();
}

// Writes blocks past the page cache as far as that goes, and says how far.
absl::StatusOr<int64_t> OutputDir::WriteBlocks(int fd, const std::string& name, int64_t offset,
                                               const std::byte* data, int64_t count) {
  int64_t done = 0;
  while (done < count && done % kBlock == 0) {
    int64_t written = files_.Write(fd, data + done, count - done, offset + done);
    if (written == -EINTR) continue;
    if (written == -EINVAL) return done;  // the device wants larger blocks
    if (written <= 0) return FileError(written == 0 ? -EIO : written, PathOf(name), "writing");
    done += written;
  }
  return done;
}

absl::Status OutputDir::WriteRange(int fd, const std::string& name, int64_t offset, const std::byte* data,
                                   int64_t count) {
  int direct = -1;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = direct_.find(name);
    if (found != direct_.end()) direct = found->second;
  }
  int64_t begin = RoundDown(offset + kBlock - 1);
  int64_t end = RoundDown(offset + count);
  bool aligned = reinterpret_cast<uintptr_t>(data + (begin - offset)) % kBlock == 0;
  if (direct < 0 || !aligned || end - begin < request_.direct) {
    TWIN_RETURN_IF_ERROR(WriteAt(fd, name, offset, data, count));
    // A wish only: a failure shows again when the file is synced.
    if (count >= kWorthWriteback) files_.StartWriteback(fd, offset, count);
    return absl::OkStatus();
  }
  // The blocks that are shared with neighbours go through the cache, where two writers of one block do no
  // harm; none of them is ever written past it.
  TWIN_RETURN_IF_ERROR(WriteAt(fd, name, offset, data, begin - offset));
  TWIN_ASSIGN_OR_RETURN(int64_t done, WriteBlocks(direct, name, begin, data + (begin - offset), end - begin));
  return WriteAt(fd, name, begin + done, data + (begin + done - offset), offset + count - begin - done);
}

void OutputDir::CloseFile(int fd, const std::string& name) {
  int direct = -1;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    open_.erase(name);
    auto found = direct_.find(name);
    if (found != direct_.end()) {
      direct = found->second;
      direct_.erase(found);
    }
  }
  if (direct >= 0) files_.Close(direct);
  files_.Close(fd);
}

bool OutputDir::ReadBack(int fd, int64_t offset, std::byte* data, int64_t count) {
  while (count > 0) {
    int64_t read = files_.Read(fd, data, count, offset);
    if (read == -EINTR) continue;
    if (read <= 0) return false;
    data += read;
    offset += read;
    count -= read;
  }
  return true;
}

absl::Status OutputDir::NoteRange(const std::string& name, int64_t offset, int64_t count, uint64_t hash) {
  resumable_ = true;
  return Note(absl::StrCat("range ", offset, " ", count, " ", absl::Hex(hash, absl::kZeroPad16), " ", name));
}

const uint64_t* OutputDir::FindRange(const std::string& name, int64_t offset, int64_t count) const {
  auto file = ranges_.find(name);
  if (file == ranges_.end()) return nullptr;
  auto range = file->second.find({offset, count});
  return range == file->second.end() ? nullptr : &range->second;
}

bool OutputDir::Tells(const std::string& name, int64_t offset, int64_t count) const {
  return finished_.count(name) > 0 || FindRange(name, offset, count) != nullptr;
}

absl::Status OutputDir::FinishFile(int fd, const std::string& name, const FinishedFile& file) {
  int64_t synced = files_.Sync(fd);
  if (synced < 0) return FileError(synced, PathOf(name), "syncing");
  CloseFile(fd, name);
  resumable_ = true;
  return Note(absl::StrCat("file ", file.bytes, " ", file.sha256, " ",
                           file.parts.empty() ? "-" : absl::StrJoin(file.parts, ","), " ", name));
}

const FinishedFile* OutputDir::FindFinished(const std::string& name) {
  auto found = finished_.find(name);
  if (found == finished_.end() || LengthOf(PathOf(name)) != found->second.bytes) return nullptr;
  return &found->second;
}

absl::StatusOr<int> OutputDir::OpenSmall(const std::string& name) {
  for (size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1)) {
    std::string folder = PathOf(name.substr(0, slash));
    int64_t made = files_.MakeFolder(folder);
    if (made < 0 && made != -EEXIST) return FileError(made, folder, "making the folder");
  }
  std::string path = PathOf(name);
  int fd = files_.Open(path, FileSystem::OpenMode::kCreate);
  if (fd < 0) return FileError(fd, path, "making the file");
  int64_t cut = files_.Truncate(fd, 0);
  if (cut < 0) {
    files_.Close(fd);
    return FileError(cut, path, "emptying the file");
  }
  if (&files_ != &DiscardedFiles()) open_[name] = fd;
  appended_[name] = 0;
  return fd;
}

absl::Status OutputDir::WriteSmall(const std::string& name, absl::string_view content) {
  TWIN_RETURN_IF_ERROR(OpenSmall(name).status());
  TWIN_RETURN_IF_ERROR(Append(name, content));
  return SyncSmall(name);
}

absl::Status OutputDir::Append(const std::string& name, absl::string_view content) {
  auto at = appended_.find(name);
  if (at == appended_.end()) {
    TWIN_RETURN_IF_ERROR(OpenSmall(name).status());
    at = appended_.find(name);
  }
  int64_t count = static_cast<int64_t>(content.size());
  int fd = &files_ == &DiscardedFiles() ? 0 : open_[name];
  TWIN_RETURN_IF_ERROR(
      WriteAt(fd, name, at->second, reinterpret_cast<const std::byte*>(content.data()), count));
  at->second += count;
  return absl::OkStatus();
}

absl::Status OutputDir::SyncSmall(const std::string& name) {
  appended_.erase(name);
  auto found = open_.find(name);
  if (found == open_.end()) return absl::OkStatus();
  int fd = found->second;
  open_.erase(found);
  int64_t synced = files_.Sync(fd);
  files_.Close(fd);
  return synced < 0 ? FileError(synced, PathOf(name), "syncing") : absl::OkStatus();
}

absl::StatusOr<std::string> OutputDir::CopyIn(const std::string& from, const std::string& name) {
  TWIN_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, ReadableFile::Open(from));
  TWIN_RETURN_IF_ERROR(OpenSmall(name).status());
  Sha256 sha;
  std::string piece(std::min(kCopyBytes, file->size()), '\0');
  for (int64_t at = 0; at < file->size(); at += kCopyBytes) {
    int64_t count = std::min(kCopyBytes, file->size() - at);
    TWIN_RETURN_IF_ERROR(file->ReadAt(at, count, reinterpret_cast<std::byte*>(piece.data())));
    sha.Add(piece.data(), count);
    TWIN_RETURN_IF_ERROR(Append(name, absl::string_view(piece.data(), count)));
  }
  TWIN_RETURN_IF_ERROR(file->CheckUnchanged());
  TWIN_RETURN_IF_ERROR(SyncSmall(name));
  return sha.Finish();
}

// The journal goes first: killed on the way, the rest is a folder of which nothing is believed. A failure to
// remove is not reported, since the run's own failure is.
absl::Status OutputDir::Abandon(const absl::Status& why) {
  if (&files_ == &DiscardedFiles() || published_ || folder_fd_ < 0) return why;
  const std::optional<Diagnostic> d = DiagnosticOf(why);
  const ExitCode exit = ExitCodeOf(why);
  const bool may_pass =
      exit == ExitCode::kResources || exit == ExitCode::kTransient || (d.has_value() && d->code == 1607);
  if (may_pass && resumable_) {
    const bool again = d.has_value() && (d->code == 1605 || d->code == 1606) && !d->hint.empty();
    return again
               ? Error(d->code, d->place, d->message, absl::StrCat(d->hint, ": what is written stays valid"))
               : why;
  }
  files_.Remove(PathOf(kJournal));
  std::vector<std::filesystem::path> below;
  std::error_code failed;
  for (auto at = std::filesystem::recursive_directory_iterator(partial_, failed);
       !failed && at != std::filesystem::recursive_directory_iterator(); at.increment(failed)) {
    below.push_back(at->path());
  }
  // What lies deeper was listed later.
  for (auto path = below.rbegin(); path != below.rend(); ++path) {
    const bool folder =
        std::filesystem::symlink_status(*path, failed).type() == std::filesystem::file_type::directory;
    folder ? files_.RemoveFolder(path->string()) : files_.Remove(path->string());
  }
  files_.RemoveFolder(partial_);
  return why;
}

absl::Status OutputDir::Publish() {
  if (&files_ == &DiscardedFiles()) return absl::OkStatus();
  TWIN_RETURN_IF_ERROR(SyncFolder(partial_));
  int64_t renamed = files_.Rename(partial_, request_.out);
  if (renamed < 0) return FileError(renamed, request_.out, "renaming the finished folder");
  TWIN_RETURN_IF_ERROR(SyncFolder(ParentOf(request_.out)));
  std::string journal = absl::StrCat(request_.out, "/", kJournal);
  int64_t removed = files_.Remove(journal);
  return removed < 0 ? FileError(removed, journal, "removing the journal") : absl::OkStatus();
}

}  // namespace twinforge
