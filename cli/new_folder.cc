#include "cli/new_folder.h"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "exporters/new_files.h"

namespace twinforge {

absl::Status WriteAndSync(FileSystem& files, int fd, const std::string& path, absl::string_view bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  for (int64_t done = 0; done < size;) {
    const int64_t wrote =
        files.Write(fd, reinterpret_cast<const std::byte*>(bytes.data()) + done, size - done, done);
    if (wrote <= 0) return FileError(wrote == 0 ? -EIO : wrote, path, "write");
    done += wrote;
  }
  const int synced = files.Sync(fd);
  return synced < 0 ? FileError(synced, path, "sync") : absl::OkStatus();
}

namespace {

absl::Status WriteSynced(FileSystem& files, const std::string& path, absl::string_view bytes) {
  const int fd = files.Open(path, FileSystem::OpenMode::kCreate);
  if (fd < 0) return FileError(fd, path, "create");
  const auto close = absl::MakeCleanup([&] { files.Close(fd); });
  // A run that was killed may have left a longer one.
  const int cut = files.Truncate(fd, static_cast<int64_t>(bytes.size()));
  return cut < 0 ? FileError(cut, path, "write") : WriteAndSync(files, fd, path, bytes);
}

}  // namespace

absl::Status WriteNewFile(const std::string& path, absl::string_view bytes) {
  FileSystem& files = SystemFiles();
  const std::string partial = path + ".partial";
  auto drop = absl::MakeCleanup([&] { files.Remove(partial); });
  TWIN_RETURN_IF_ERROR(WriteSynced(files, partial, bytes));
  const int renamed = files.Rename(partial, path);
  if (renamed == -EEXIST) return Error(1608, path, "exists", "name a file that does not");
  if (renamed < 0) return FileError(renamed, path, "name");
  std::move(drop).Cancel();
  return absl::OkStatus();
}

absl::Status WriteNewFolder(const std::vector<std::pair<std::string, std::string>>& contents,
                            const std::string& path) {
  std::vector<NewFile> plan;
  for (const auto& [name, bytes] : contents) {
    const auto size = static_cast<int64_t>(bytes.size());
    plan.push_back({name, size, {{.length = size, .text = std::make_shared<const std::string>(bytes)}}});
  }
  return WriteNewFiles(SystemFiles(), plan, nullptr, path).status();
}

}  // namespace twinforge
