#include "exporters/publish.h"

#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/status_macros.h"

namespace twinforge {
namespace {

constexpr absl::string_view kSink = "/dev/null";

// The caller's own, the sink for "/dev/null", or the system's.
FileSystem& FilesFor(const PublishRequest& request) {
  if (request.options.seams.files != nullptr) return *request.options.seams.files;
  return request.out == kSink ? DiscardedFiles() : SystemFiles();
}

std::string RealPath(const std::string& path) {
  char resolved[PATH_MAX];
  return realpath(path.c_str(), resolved) == nullptr ? "" : resolved;
}

std::string ParentPath(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::Status CheckOutside(const std::string& root, const std::string& out) {
  std::string inside = RealPath(root);
  std::string parent = RealPath(ParentPath(out));
  if (inside.empty() || out == kSink) return absl::OkStatus();
  if (parent != inside && !absl::StartsWith(parent, inside + "/")) return absl::OkStatus();
  return Error(1611, out, absl::StrCat("it lies inside ", root, ", which is being read"),
               "name a folder beside it");
}

// One word that changes when one of these files is replaced: their sizes, times and inodes.
std::string StampOf(const std::vector<std::string>& paths) {
  Sha256 sha;
  for (const std::string& path : paths) {
    struct stat info = {};
    stat(path.c_str(), &info);
    std::string line = absl::StrCat(info.st_size, " ", info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec, " ",
                                    info.st_ino, "\n");
    sha.Add(line.data(), static_cast<int64_t>(line.size()));
  }
  return sha.Finish();
}

// Of reading everything, where something changes it meanwhile.
constexpr int kMostRuns = 3;

// What the kernel's clock may not tell apart: two changes within one tick of it.
constexpr int64_t kTickNanoseconds = 20'000'000;

// A file's change time. One of just now is waited for: a change that follows at once could have the same.
struct timespec SettledChangeOf(const std::string& path) {
  struct stat info = {};
  struct timespec now = {};
  while (stat(path.c_str(), &info) == 0 && clock_gettime(CLOCK_REALTIME, &now) == 0) {
    const int64_t seconds = now.tv_sec - info.st_ctim.tv_sec;
    const int64_t age = now.tv_nsec - info.st_ctim.tv_nsec + (seconds > 1 ? 2 : seconds) * 1'000'000'000;
    if (age < 0 || age >= kTickNanoseconds) break;  // below 0: the clock was set back, and will not meet it
    usleep((kTickNanoseconds - age) / 1000 + 1);
  }
  return info.st_ctim;
}

// One word that changes when bytes of one of the files do, whatever their other times say; "" where none does
// so.
std::string ChangesOf(FileSystem& files, const std::vector<std::string>& paths) {
  Sha256 sha;
  for (const std::string& path : paths) {
    if (!files.KeepsChangeTimes(path)) return "";
    const struct timespec changed = SettledChangeOf(path);
    const std::string line = absl::StrCat(changed.tv_sec, ".", changed.tv_nsec, "\n");
    sha.Add(line.data(), static_cast<int64_t>(line.size()));
  }
  return sha.Finish();
}

// Every statistic that the files' programs use, each in one pass.
absl::StatusOr<StatCache> StatsOf(const std::vector<OutputFile>& files, const TensorReader& reader) {
  StatCache stats;
  Scratch scratch;
  for (const OutputFile& file : files) {
    for (const OutputTensor& tensor : file.tensors) {
      if (OnlyMoves(tensor.program)) continue;
      TWIN_RETURN_IF_ERROR(PrepareStats(tensor.program, reader, scratch, stats));
    }
  }
  return stats;
}

absl::StatusOr<std::vector<ManifestFile>> WriteSmallFiles(const PublishRequest& request, OutputDir& dir) {
  std::vector<ManifestFile> written;
  for (const SmallFile& file : request.plan.small_files) {
    TWIN_RETURN_IF_ERROR(dir.WriteSmall(file.name, file.content));
    written.push_back({file.name, static_cast<int64_t>(file.content.size()), Sha256Hex(file.content)});
  }
  for (const Companion& companion : request.plan.companions) {
    std::string from = absl::StrCat(request.root, "/", companion.from);
    TWIN_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, ReadableFile::Open(from));
    TWIN_ASSIGN_OR_RETURN(std::string sha256, dir.CopyIn(from, companion.name));
    written.push_back({companion.name, file->size(), std::move(sha256)});
  }
  return written;
}

// nullopt where bytes that were read changed on the way, by `changes`, under the same sizes and times.
absl::StatusOr<std::optional<ExportResult>> Fill(const PublishRequest& request, const std::string& changes,
                                                 OutputDir& dir,
                                                 const std::function<void(const Progress&)>& progress) {
  const ExportPlan& plan = request.plan;
  TWIN_ASSIGN_OR_RETURN(StatCache stats, StatsOf(plan.files, request.reader));
  StreamRequest tensors{.files = plan.files,
                        .reader = request.reader,
                        .stats = &stats,
                        .workers = plan.workers,
                        .share = plan.share,
                        .tile_bytes = request.options.seams.tile_bytes};
  TWIN_ASSIGN_OR_RETURN(StreamResult streamed, StreamFiles(tensors, dir, progress));
  TWIN_RETURN_IF_ERROR(request.reader.CheckUnchanged());
  if (!changes.empty() && ChangesOf(FilesFor(request), request.reader.Files()) != changes)
    return std::nullopt;
  TWIN_ASSIGN_OR_RETURN(std::vector<ManifestFile> small, WriteSmallFiles(request, dir));
  if (request.close) TWIN_RETURN_IF_ERROR(request.close(streamed, std::move(small), dir));
  TWIN_RETURN_IF_ERROR(dir.Publish());
  return ExportResult{.folder = request.out,
                      .bytes_written = streamed.bytes_written,
                      .bytes_reused = streamed.bytes_reused,
                      .peak_scratch_bytes = streamed.peak_scratch_bytes};
}

}  // namespace

absl::StatusOr<ExportResult> WriteAndPublish(const PublishRequest& request,
                                             const std::function<void(const Progress&)>& progress) {
  TWIN_RETURN_IF_ERROR(CheckOutside(request.root, request.out));
  int64_t bytes = 0;
  for (const OutputFile& file : request.plan.files) bytes += file.bytes;
  FileSystem& files = FilesFor(request);
  const std::vector<std::string> read = request.reader.Files();
  // A link made or a right changed moves the change time too, so that is no error: the journal is then
  // doubted like that of a run that was killed, and what is written is compared with what is there now.
  for (int run = 0;; ++run) {
    const std::string changes = ChangesOf(files, read);
    TWIN_ASSIGN_OR_RETURN(std::unique_ptr<OutputDir> dir,
                          OutputDir::Open(files, {.out = request.out,
                                                  .digest = request.plan.digest,
                                                  .stamp = StampOf(read),
                                                  .changes = changes,
                                                  .bytes = bytes,
                                                  .direct = request.options.seams.direct_bytes}));
    if (dir->published()) return ExportResult{.folder = request.out, .bytes_reused = bytes};
    absl::StatusOr<std::optional<ExportResult>> result = Fill(request, changes, *dir, progress);
    if (!result.ok()) {
      return dir->Abandon(result.status());
    }
    if (result->has_value()) return **std::move(result);
    if (run + 1 < kMostRuns) continue;
    const absl::Status status = Error(1205, request.root, "its files changed whenever they were read",
                                      "run again when nothing writes there");
    return dir->Abandon(status);
  }
}

}  // namespace twinforge
