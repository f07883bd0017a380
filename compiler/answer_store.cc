#include "compiler/answer_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/status_macros.h"

namespace twinforge {
namespace {

constexpr size_t kHashDigits = 64;
constexpr int64_t kLargestAnswer = 1 << 30;

std::string KeyOf(const CompilerQuestion& question, int64_t partitions) {
  struct stat info = {};
  const int64_t size = stat(question.library.path.c_str(), &info) == 0 ? info.st_size : 0;
  Sha256 hash;
  const auto add = [&](absl::string_view part) {
    const std::string framed = absl::StrCat(part.size(), ":", part);
    hash.Add(framed.data(), static_cast<int64_t>(framed.size()));
  };
  add(question.library.version);
  add(absl::StrCat(size));
  add(question.topology.name);
  add(SerializedCompileOptions(question.program, partitions, question.flags));
  add(question.program);
  return hash.Finish();
}

// A file is the hash of an answer's bytes, and the bytes.
std::optional<CompilerAnswer> Recall(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return std::nullopt;
  const absl::StatusOr<std::string> kept = ReadTextFile(path, kLargestAnswer);
  if (!kept.ok() || kept->size() < kHashDigits) return std::nullopt;
  const std::string bytes = kept->substr(kHashDigits);
  CompilerAnswer answer;
  if (Sha256Hex(bytes) != kept->substr(0, kHashDigits) || !answer.ParseFromString(bytes)) return std::nullopt;
  return answer;
}

absl::Status CannotKeep(const std::string& path) {
  return Error(2110, path, absl::StrCat("the answer cannot be kept: ", std::strerror(errno)),
               "name a folder with --cache that can be written");
}

// Whole or not at all: under another name first.
absl::Status Keep(const CompilerAnswer& answer, const std::string& path) {
  const std::string bytes = answer.SerializeAsString();
  const std::string whole = absl::StrCat(Sha256Hex(bytes), bytes);
  const std::string fresh = absl::StrCat(path, ".", getpid(), ".new");
  std::FILE* const file = std::fopen(fresh.c_str(), "wb");
  if (file == nullptr) return CannotKeep(fresh);
  const bool written = std::fwrite(whole.data(), 1, whole.size(), file) == whole.size();
  const bool closed = std::fclose(file) == 0;
  if (written && closed && std::rename(fresh.c_str(), path.c_str()) == 0) return absl::OkStatus();
  const absl::Status why = CannotKeep(fresh);
  std::remove(fresh.c_str());
  return why;
}

}  // namespace

absl::StatusOr<CompilerAnswer> AskOrRecall(const CompilerQuestion& question, const std::string& folder) {
  if (folder.empty()) return AskCompiler(question);
  if (mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) return CannotKeep(folder);
  TWIN_ASSIGN_OR_RETURN(const int64_t partitions, PartitionsOf(question.program));
  const std::string path = absl::StrCat(folder, "/", KeyOf(question, partitions), ".answer");
  if (std::optional<CompilerAnswer> known = Recall(path)) return *std::move(known);
  TWIN_ASSIGN_OR_RETURN(CompilerAnswer answer, AskCompiler(question));
  TWIN_RETURN_IF_ERROR(Keep(answer, path));
  return answer;
}

}  // namespace twinforge
