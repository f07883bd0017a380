#include "importers/checkpoint_folder.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/diagnostic.h"
#include "base/file.h"
#include "base/json_reader.h"
#include "base/status_macros.h"

namespace twinforge {
namespace {

constexpr char kSingle[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";
constexpr int64_t kLargestIndex = int64_t{256} << 20;  // a million tensors with long names

absl::string_view BaseName(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == absl::string_view::npos ? path : path.substr(slash + 1);
}

std::string FolderOf(absl::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == absl::string_view::npos) return ".";
  return slash == 0 ? "/" : std::string(path.substr(0, slash));
}

// The path without symbolic links; "" with errno set where there is none.
std::string RealPath(const std::string& path) {
  std::unique_ptr<char, void (*)(void*)> real(::realpath(path.c_str(), nullptr), std::free);
  return real == nullptr ? "" : std::string(real.get());
}

// Where a real folder's links may lead: into itself, and, if it is a snapshot of the Hub's
// cache (REPO/snapshots/REVISION, or a folder of that), into REPO/blobs.
struct Fence {
  explicit Fence(const std::string& real_root)
      : inside(real_root == "/" ? "/" : absl::StrCat(real_root, "/")) {
    const size_t snapshots = inside.rfind("/snapshots/");
    if (snapshots == std::string::npos) return;
    const bool has_revision = inside.size() > snapshots + std::strlen("/snapshots/");
    if (has_revision) blobs = absl::StrCat(inside.substr(0, snapshots), "/blobs/");
  }
  bool Holds(const std::string& real) const {
    if (absl::StartsWith(real, inside)) return true;
    return !blobs.empty() && absl::StartsWith(real, blobs) &&
           real.find('/', blobs.size()) == std::string::npos;
  }
  std::string inside;
  std::string blobs;
};

// The path to open for `name` in the folder, its links followed as far as the fence allows.
absl::StatusOr<std::string> Resolve(const std::string& root, const Fence& fence, const std::string& name,
                                    absl::string_view wanted_by) {
  const std::string path = absl::StrCat(root, "/", name);
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) {
    return Error(1307, absl::StrCat(root, "/", wanted_by),
                 absl::StrCat("names the file ", JsonQuoted(name, 100), ", which is not in the folder"),
                 "fetch the missing file");
  }
  if (!S_ISLNK(info.st_mode)) return path;
  const std::string real = RealPath(path);
  if (real.empty() && errno == ELOOP) return Error(1308, path, "symbolic links that lead in a circle");
  if (real.empty()) {
    return Error(1307, path, absl::StrCat("is a symbolic link to nothing: ", std::strerror(errno)),
                 "fetch the missing file");
  }
  if (!fence.Holds(real)) {
    return Error(1308, path, absl::StrCat("is a symbolic link to ", real, ", outside the checkpoint"));
  }
  return real;
}

absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& root) {
  std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(root.c_str()), ::closedir);
  if (folder == nullptr) return Error(1202, root, absl::StrCat("cannot be opened: ", std::strerror(errno)));
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(folder.get())) names.emplace_back(entry->d_name);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> WithSuffix(const std::vector<std::string>& names, absl::string_view suffix) {
  std::vector<std::string> out;
  for (const std::string& name : names) {
    if (absl::EndsWith(name, suffix)) out.push_back(name);
  }
  return out;
}

bool Contains(const std::vector<std::string>& sorted, absl::string_view name) {
  return std::binary_search(sorted.begin(), sorted.end(), name,
                            [](absl::string_view a, absl::string_view b) { return a < b; });
}

absl::StatusOr<CheckpointFolder> FromIndex(const std::string& root, const std::string& index_name,
                                           const std::vector<std::string>& names) {
  CheckpointFolder out;
  out.root = root;
  out.index_name = index_name;
  const Fence fence(RealPath(root));
  TWIN_ASSIGN_OR_RETURN(const std::string index_path, Resolve(root, fence, index_name, index_name));
  TWIN_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(index_path, kLargestIndex));
  TWIN_ASSIGN_OR_RETURN(out.index, ParseShardIndex(text, absl::StrCat(root, "/", index_name)));
  for (const std::string& name : out.index->files) {
    TWIN_ASSIGN_OR_RETURN(std::string path, Resolve(root, fence, name, index_name));
    out.files.push_back({name, std::move(path)});
  }
  for (const std::string& name : names) {
    if (absl::StartsWith(name, "model") && absl::EndsWith(name, ".safetensors") &&
        !Contains(out.index->files, name)) {
      out.warnings.push_back(
          absl::StrCat(root, "/", name, ": is not in ", index_name, ", so it is not read"));
    }
  }
  return out;
}

absl::StatusOr<CheckpointFolder> FromSingle(const std::string& root, const std::string& name) {
  CheckpointFolder out;
  out.root = root;
  TWIN_ASSIGN_OR_RETURN(std::string path, Resolve(root, Fence(RealPath(root)), name, name));
  out.files.push_back({name, std::move(path)});
  return out;
}

// transformers would take model.safetensors before an index, others the index: neither is right
// to guess. Other names (adapters, diffusion models) are taken when they are alone.
absl::StatusOr<CheckpointFolder> FromFolder(const std::string& root) {
  TWIN_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(root));
  const std::vector<std::string> indexes = WithSuffix(names, ".safetensors.index.json");
  const std::vector<std::string> tensors = WithSuffix(names, ".safetensors");
  const bool has_index = Contains(indexes, kIndex);
  const bool has_single = Contains(tensors, kSingle);
  if (has_index || indexes.size() == 1) {
    const std::string& index = has_index ? std::string(kIndex) : indexes[0];
    TWIN_ASSIGN_OR_RETURN(CheckpointFolder found, FromIndex(root, index, names));
    if (!has_single || Contains(found.index->files, kSingle)) return found;
    return Error(1309, root, absl::StrCat("has both ", kSingle, " and ", index, ", which does not name it"),
                 "name the one that is meant");
  }
  if (has_single) return FromSingle(root, kSingle);
  if (tensors.size() == 1) return FromSingle(root, tensors[0]);
  if (tensors.empty() && indexes.empty()) {
    return Error(1301, root, "the folder has no .safetensors file", "name the folder that has the weights");
  }
  const bool shards = absl::StrContains(tensors.empty() ? "" : tensors[0], "-of-");
  if (shards && indexes.empty()) {
    return Error(1301, root, absl::StrCat("the folder has ", tensors.size(), " shards and no ", kIndex),
                 "fetch the index too");
  }
  return Error(
      1309, root,
      absl::StrCat("the folder has several: ", absl::StrJoin(indexes.empty() ? tensors : indexes, ", ")),
      "name the one that is meant");
}

}  // namespace

absl::StatusOr<CheckpointFolder> FindCheckpoint(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) {
    return Error(1202, path,
                 errno == ELOOP ? "symbolic links that lead in a circle"
                 : errno == ENOENT || errno == ENOTDIR
                     ? "no such file or folder"
                     : absl::StrCat("cannot be opened: ", std::strerror(errno)));
  }
  if (S_ISDIR(info.st_mode)) {
    std::string root = path;
    while (root.size() > 1 && root.back() == '/') root.pop_back();
    return FromFolder(root);
  }
  if (absl::EndsWith(path, ".index.json")) {
    const std::string root = FolderOf(path);
    TWIN_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(root));
    return FromIndex(root, std::string(BaseName(path)), names);
  }
  // A file that the user named is opened wherever its link leads: that choice is the user's.
  CheckpointFolder out;
  out.root = FolderOf(path);
  const std::string real = RealPath(path);
  out.files.push_back({std::string(BaseName(path)), real.empty() ? path : real});
  return out;
}

absl::Status CheckInside(const std::string& root, const std::string& name) {
  const Fence fence(RealPath(root));
  TWIN_ASSIGN_OR_RETURN(const std::string path, Resolve(root, fence, name, name));
  // A folder on the way may be a link too.
  const std::string real = RealPath(path);
  if (real.empty() || fence.Holds(real)) return absl::OkStatus();
  return Error(1308, path, absl::StrCat("leads to ", real, ", outside the checkpoint"));
}

absl::Status CheckInsideIfThere(const std::string& root, const std::string& name) {
  struct stat info;
  if (::lstat(absl::StrCat(root, "/", name).c_str(), &info) != 0) return absl::OkStatus();
  return CheckInside(root, name);
}

}  // namespace twinforge
