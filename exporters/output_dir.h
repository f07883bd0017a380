// A folder that appears whole or not at all, and whose making can be resumed.
//
//   OUT.partial-3f5a9c01b2d4/        while it is made
//     .journal                       what is complete, line by line
//     model-00001-of-00002.safetensors ...
//   OUT/                             after one rename
//
// Files are allocated at full length, written in ranges by any thread in any order,
// synced, and noted in the journal. The folder is locked while a run owns it. Opening it
// again with the same digest and the same stamp of the source finds the journal; what it says of ranges
// is only a claim, which the caller checks against the bytes. Where the source may have changed under that
// stamp the journal is doubted: then the caller makes every byte anew, and only writes those that differ. A
// journal line carries its own checksum, so one torn by a crash is recognised and dropped with what follows.
//
// A run that fails leaves the folder where a later run can go on with it: something is written, and what
// stopped us may pass (a full disk, an I/O error). Otherwise Abandon() removes it.
//
// Publish order, each step synced before the next: files, small files, the folder,
// rename, the parent. The journal goes last: killed between rename and that, the folder is the
// finished twin with a hidden file too many, and the next run with this digest removes it.
#ifndef TWINFORGE_EXPORTERS_OUTPUT_DIR_H_
#define TWINFORGE_EXPORTERS_OUTPUT_DIR_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "exporters/file_system.h"

namespace twinforge {

// A file that an earlier run finished: synced to disk before the journal said so.
struct FinishedFile {
  int64_t bytes = 0;
  std::string sha256;
  std::vector<std::string> parts;  // a hash of each tensor, in order
};

class OutputDir {
 public:
  struct Request {
    std::string out;           // the final name; must not exist
    std::string digest;        // of the plan: another plan never resumes this one's folder
    std::string stamp;         // of the source's files as they are now (one word)
    std::string changes;       // the same of their change times; "" where the file system keeps none
    int64_t bytes = 0;         // that will be written in all, for the check of free space
    int64_t direct = 1 << 18;  // whole blocks of a range that are worth writing past the page cache
  };
  // Creates or resumes. TF1608 where `out` exists, TF1609 where another run holds the lock.
  static absl::StatusOr<std::unique_ptr<OutputDir>> Open(FileSystem& files, const Request& request);
  ~OutputDir();
  OutputDir(const OutputDir&) = delete;
  OutputDir& operator=(const OutputDir&) = delete;

  // Whether an earlier run had already published `out` and only its journal was left to remove.
  bool published() const { return published_; }

  // Whether the journal found may tell of a source whose bytes were others.
  bool doubted() const { return doubted_; }

  // ---- large files; every function below is thread-safe

  // Opens `name` at its full length. The descriptor is closed by FinishFile or the destructor.
  absl::StatusOr<int> StartFile(const std::string& name, int64_t bytes);
  // Writes a range. Where `data` lies in memory as the range lies in the file, modulo kBlock, its whole
  // blocks go to the disk at once and leave the page cache alone: that takes a third of the time of a copy
  // into the cache, which has no use for a twin, and the sync at the end finds nothing left to do.
  absl::Status WriteRange(int fd, const std::string& name, int64_t offset, const std::byte* data,
                          int64_t count);
  static constexpr int64_t kBlock = 4096;
  // Reads what an earlier run wrote; false where it is not all there.
  bool ReadBack(int fd, int64_t offset, std::byte* data, int64_t count);
  // Notes that [offset, offset + count) of `name` is written and has this hash.
  absl::Status NoteRange(const std::string& name, int64_t offset, int64_t count, uint64_t hash);
  // The hash that the journal found has for exactly that range, or nullptr.
  const uint64_t* FindRange(const std::string& name, int64_t offset, int64_t count) const;
  // Syncs and closes, then notes the file as finished.
  absl::Status FinishFile(int fd, const std::string& name, const FinishedFile& file);
  // Whether the journal found tells of that range, or of the whole file, whatever became of them since.
  bool Tells(const std::string& name, int64_t offset, int64_t count) const;
  // The file as the journal found has it, if it is still there in that length; else nullptr.
  const FinishedFile* FindFinished(const std::string& name);

  // ---- and what is small

  // Writes `content` whole and synced. Folders on the way are made.
  absl::Status WriteSmall(const std::string& name, absl::string_view content);
  // Appends to a file begun with WriteSmall; SyncSmall makes it last.
  absl::Status Append(const std::string& name, absl::string_view content);
  absl::Status SyncSmall(const std::string& name);
  // Copies a file from elsewhere in pieces and gives its sha256.
  absl::StatusOr<std::string> CopyIn(const std::string& from, const std::string& name);

  // Makes it OUT. Nothing may be written after.
  absl::Status Publish();

  // After a failure, `why`. Nothing may be written after.
  absl::Status Abandon(const absl::Status& why);

  const std::string& partial() const { return partial_; }

 private:
  OutputDir(FileSystem& files, const Request& request);
  std::string PathOf(absl::string_view name) const;
  absl::Status CheckFresh();
  absl::Status EnterFolder();
  absl::Status CheckParent();
  absl::Status ReadJournal();
  absl::Status CheckRoom();
  absl::Status SyncFolder(const std::string& path);
  absl::Status Note(absl::string_view payload);
  absl::Status WriteAt(int fd, absl::string_view name, int64_t offset, const std::byte* data, int64_t count);
  absl::StatusOr<int64_t> WriteBlocks(int fd, const std::string& name, int64_t offset, const std::byte* data,
                                      int64_t count);
  void CloseFile(int fd, const std::string& name);
  absl::StatusOr<int> OpenSmall(const std::string& name);
  bool IsOfThisPlan(absl::string_view payload);
  bool Recall(absl::string_view payload);

  FileSystem& files_;
  Request request_;
  std::string partial_;
  bool published_ = false;
  bool doubted_ = false;
  std::atomic<bool> resumable_ = false;  // the journal tells of a range or a file
  int folder_fd_ = -1;                   // holds the lock
  int journal_fd_ = -1;
  std::mutex mutex_;  // guards what follows
  int64_t journal_end_ = 0;
  std::map<std::string, int> open_;
  std::map<std::string, int> direct_;  // the same files, opened a second time
  std::map<std::string, int64_t> appended_;
  // What the journal said when opened; not changed after.
  std::map<std::string, std::map<std::pair<int64_t, int64_t>, uint64_t>> ranges_;
  std::map<std::string, FinishedFile> finished_;
};

}  // namespace twinforge

#endif  // TWINFORGE_EXPORTERS_OUTPUT_DIR_H_
