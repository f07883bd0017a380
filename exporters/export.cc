#include <sys/stat.h>

#include <climits>
#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/diagnostic.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "exporters/exporter.h"
#include "exporters/manifest.h"
#include "exporters/model_card.h"
#include "exporters/output_dir.h"
#include "exporters/publish.h"
#include "exporters/stream.h"
#include "ir/verify.h"

namespace twinforge {
namespace {

constexpr absl::string_view kSink = "/dev/null";

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

}  // namespace

FileSystem& FilesFor(const ExportOptions& options, const std::string& out) {
  if (options.seams.files != nullptr) return *options.seams.files;
  return out == kSink ? DiscardedFiles() : SystemFiles();
}

absl::Status CheckOutside(const std::string& root, const std::string& out) {
  std::string inside = RealPath(root);
  std::string parent = RealPath(ParentPath(out));
  if (inside.empty() || out == kSink) return absl::OkStatus();
  if (parent != inside && !absl::StartsWith(parent, inside + "/")) return absl::OkStatus();
  return Error(1611, out, absl::StrCat("it lies inside ", root, ", which is being read"),
               "name a folder beside it");
}

std::string StampOf(const std::string& root, const std::vector<std::string>& names) {
  Sha256 sha;
  for (const std::string& name : names) {
    struct stat info = {};
    stat(absl::StrCat(root, "/", name).c_str(), &info);
    std::string line = absl::StrCat(name, " ", info.st_size, " ", info.st_mtim.tv_sec, ".",
                                    info.st_mtim.tv_nsec, " ", info.st_ino, "\n");
    sha.Add(line.data(), static_cast<int64_t>(line.size()));
  }
  return sha.Finish();
}

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

absl::StatusOr<std::vector<ManifestFile>> WriteSmallFiles(const ExportPlan& plan, const std::string& root,
                                                          OutputDir& dir) {
  std::vector<ManifestFile> written;
  for (const SmallFile& file : plan.small_files) {
    TWIN_RETURN_IF_ERROR(dir.WriteSmall(file.name, file.content));
    written.push_back({file.name, static_cast<int64_t>(file.content.size()), Sha256Hex(file.content)});
  }
  for (const std::string& name : plan.companions) {
    std::string from = absl::StrCat(root, "/", name);
    TWIN_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, ReadableFile::Open(from));
    TWIN_ASSIGN_OR_RETURN(std::string sha256, dir.CopyIn(from, name));
    written.push_back({name, file->size(), std::move(sha256)});
  }
  return written;
}

absl::StatusOr<ExportResult> Export(const Model& model, const ExportPlan& plan, const Provenance& provenance,
                                    const ExportOptions& options, const std::string& out,
                                    const std::function<void(const Progress&)>& progress) {
  if (!model.has_bytes()) {
    return Error(1612, "", "a model from a config alone has no bytes to write",
                 "name the checkpoint's folder");
  }
  TWIN_RETURN_IF_ERROR(Verify(model.graph));
  TWIN_RETURN_IF_ERROR(CheckOutside(model.root, out));
  std::vector<std::string> names;
  int64_t bytes = 0;
  for (const SourceFile& file : model.files) names.push_back(file.name);
  for (const OutputFile& file : plan.files) bytes += file.bytes;
  TWIN_ASSIGN_OR_RETURN(std::unique_ptr<OutputDir> dir,
                        OutputDir::Open(FilesFor(options, out), {out, plan.digest, StampOf(model.root, names),
                                                                 bytes, options.seams.direct_bytes}));
  if (dir->published()) return ExportResult{.folder = out, .bytes_reused = bytes};

  TWIN_ASSIGN_OR_RETURN(StatCache stats, StatsOf(plan.files, *model.reader));
  StreamRequest request{.files = plan.files,
                        .reader = *model.reader,
                        .stats = &stats,
                        .workers = plan.workers,
                        .share = plan.share,
                        .tile_bytes = options.seams.tile_bytes};
  TWIN_ASSIGN_OR_RETURN(StreamResult streamed, StreamFiles(request, *dir, progress));
  TWIN_RETURN_IF_ERROR(model.reader->CheckUnchanged());

  TWIN_ASSIGN_OR_RETURN(std::vector<ManifestFile> others, WriteSmallFiles(plan, model.root, *dir));
  std::string card = ModelCard(model, plan, provenance);
  TWIN_RETURN_IF_ERROR(dir->WriteSmall("README.md", card));
  others.push_back({"README.md", static_cast<int64_t>(card.size()), Sha256Hex(card)});
  TWIN_RETURN_IF_ERROR(
      WriteManifest({model, plan, provenance, streamed.files, others},
                    [&](absl::string_view text) { return dir->Append(kManifestName, text); }));
  TWIN_RETURN_IF_ERROR(dir->SyncSmall(kManifestName));
  TWIN_RETURN_IF_ERROR(dir->Publish());
  return ExportResult{.folder = out,
                      .bytes_written = streamed.bytes_written,
                      .bytes_reused = streamed.bytes_reused,
                      .peak_scratch_bytes = streamed.peak_scratch_bytes};
}

}  // namespace twinforge
