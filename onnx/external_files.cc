#include "onnx/external_files.h"

#include <sys/stat.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "onnx/onnx-ml.pb.h"

namespace twinforge {
namespace {

namespace fs = std::filesystem;

constexpr char kReachHint[] =
    "a tensor's file lies beside the model or below its folder; a link may lead to the model's own store";
constexpr int64_t kMostOpen = 4096;

// "/a/b" holds "/a/b/c" and not "/a/bc".
bool LiesBelow(const fs::path& path, const fs::path& root) {
  auto p = path.begin();
  for (const fs::path& part : root) {
    if (part.empty()) continue;  // after a final slash
    if (p == path.end() || *p != part) return false;
    ++p;
  }
  return p != path.end();
}

absl::StatusOr<int64_t> ParseCount(const std::string& text, absl::string_view key, const std::string& place) {
  int64_t value = 0;
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || !absl::SimpleAtoi(text, &value)) {
    return Error(
        2004, place,
        absl::StrCat("external data has ", key, " ", JsonQuoted(text, 40), ", which is no number of bytes"));
  }
  return value;
}

// The keys that a reader knows; ORT's prepacked blobs are notes for itself.
bool IsKnownKey(absl::string_view key) {
  return key == "location" || key == "offset" || key == "length" || key == "checksum" || key == "basepath" ||
         absl::StartsWith(key, "prepacked_");
}

absl::StatusOr<std::map<std::string, std::string>> KeysOf(const ::onnx::TensorProto& tensor,
                                                          const std::string& place) {
  std::map<std::string, std::string> keys;
  for (const auto& entry : tensor.external_data()) {
    if (!IsKnownKey(entry.key())) {
      return Error(2004, place,
                   absl::StrCat("external data has a key ", JsonQuoted(entry.key(), 60),
                                " that the format does not know"));
    }
    if (!keys.emplace(entry.key(), entry.value()).second) {
      return Error(2004, place, absl::StrCat("external data says ", entry.key(), " twice"));
    }
  }
  return keys;
}

}  // namespace

ExternalFiles::ExternalFiles(const std::string& model_path) {
  std::error_code failed;
  const fs::path folder = fs::path(model_path).parent_path();
  const fs::path named = fs::canonical(folder.empty() ? fs::path(".") : folder, failed);
  if (!failed) roots_.push_back(named.string());
  const fs::path real = fs::canonical(model_path, failed);
  if (!failed && real.parent_path().string() != named.string()) roots_.push_back(real.parent_path().string());
}

absl::StatusOr<const ReadableFile*> ExternalFiles::Open(const std::string& location,
                                                        const std::string& place) {
  const auto known = open_.find(location);
  if (known != open_.end()) return known->second.get();
  const std::string quoted = JsonQuoted(location, 200);
  if (location.empty() || location.find('\0') != std::string::npos) {
    return Error(2004, place, absl::StrCat("external data has no location: ", quoted));
  }
  if (absl::StrContains(location, "_ORT_MEM_ADDR_")) {
    return Error(2004, place, "the tensor's bytes were in the memory of the program that wrote this file",
                 "write the model again; they are nowhere on disk");
  }
  if (fs::path(location).is_absolute() || absl::StrContains(location, '\\') ||
      (location.size() > 1 && location[1] == ':')) {
    return Error(2004, place, absl::StrCat("external data at ", quoted, " is not a relative path"),
                 kReachHint);
  }
  if (static_cast<int64_t>(open_.size()) >= kMostOpen) {
    return Error(2004, place, absl::StrCat("external data in more than ", kMostOpen, " files"));
  }
  for (const std::string& root : roots_) {
    std::error_code failed;
    const fs::path canonical = fs::canonical(fs::path(root) / location, failed);
    if (failed) continue;
    bool below = false;
    for (const std::string& allowed : roots_) below = below || LiesBelow(canonical, allowed);
    if (!below)
      return Error(2004, place, absl::StrCat("external data at ", quoted, " leads out of the model's folder"),
                   kReachHint);
    struct stat before;
    if (::lstat(canonical.c_str(), &before) != 0 || !S_ISREG(before.st_mode)) {
      return Error(2004, place, absl::StrCat("external data at ", quoted, " is not a regular file"),
                   kReachHint);
    }
    if (before.st_nlink > 1) {
      return Error(2004, place, absl::StrCat("external data at ", quoted, " has a second hard link"),
                   "it may be another's file; copy it");
    }
    TWIN_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, ReadableFile::Open(canonical.string()));
    // What was opened is what was looked at: nobody put a link in its place meanwhile.
    if (file->identity().inode != static_cast<int64_t>(before.st_ino)) {
      return Error(2004, place, absl::StrCat("external data at ", quoted, " changed while it was opened"));
    }
    return (open_[location] = std::move(file)).get();
  }
  return Error(2004, place, absl::StrCat("external data at ", quoted, ": no such file"),
               "fetch it with the model, and keep its name");
}

absl::StatusOr<ExternalPlace> ExternalFiles::Find(const ::onnx::TensorProto& tensor, int64_t wanted,
                                                  const std::string& place) {
  TWIN_ASSIGN_OR_RETURN(const auto keys, KeysOf(tensor, place));
  const auto value = [&](const char* key) {
    const auto found = keys.find(key);
    return found == keys.end() ? std::string() : found->second;
  };
  ExternalPlace at;
  at.location = value("location");
  TWIN_ASSIGN_OR_RETURN(const ReadableFile* file, Open(at.location, place));
  if (keys.count("offset") != 0) {
    TWIN_ASSIGN_OR_RETURN(at.offset, ParseCount(value("offset"), "offset", place));
  }
  at.length = wanted;
  if (keys.count("length") != 0) {
    TWIN_ASSIGN_OR_RETURN(at.length, ParseCount(value("length"), "length", place));
  }
  if (at.length != wanted) {
    return Error(2003, place,
                 absl::StrCat("external data has ", at.length, " bytes; type and shape ask for ", wanted));
  }
  if (at.offset > file->size() || at.length > file->size() - at.offset) {
    return Error(2004, place,
                 absl::StrCat("bytes ", at.offset, " to ", at.offset, " + ", at.length, " of ",
                              JsonQuoted(at.location, 200), ", which has ", file->size()),
                 "the file is cut short, or another's");
  }
  return at;
}

absl::Status ExternalFiles::Read(const ExternalPlace& at, std::byte* out) {
  TWIN_ASSIGN_OR_RETURN(const ReadableFile* file, Open(at.location, ""));
  TWIN_RETURN_IF_ERROR(file->ReadAt(at.offset, at.length, out));
  return file->CheckUnchanged();
}

const LeftBytes* ExternalFiles::LeftInFile(const ::onnx::TensorProto& tensor) const {
  const auto found = left_.find(&tensor);
  return found == left_.end() || tensor.has_raw_data() ? nullptr : &found->second;
}

absl::Status ExternalFiles::Read(const LeftBytes& bytes, std::byte* out) const {
  TWIN_RETURN_IF_ERROR(model_->ReadAt(bytes.offset, bytes.length, out));
  return model_->CheckUnchanged();
}

std::vector<std::string> ExternalFiles::locations() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : open_) names.push_back(name);
  return names;
}

}  // namespace twinforge
