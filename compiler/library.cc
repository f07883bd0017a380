#include "compiler/library.h"

#include <glob.h>
#include <sys/stat.h>

#include <cstdlib>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/diagnostic.h"

namespace twinforge {
namespace {

constexpr char kInstall[] = "pip install libtpu==0.0.42.1, or name the file with --compiler PATH";
constexpr char kFile[] = "libtpu.so";

bool IsFile(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool IsFolder(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<std::string> Matches(const std::string& pattern) {
  glob_t found = {};
  std::vector<std::string> paths;
  if (glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  return paths;
}

// ".../site-packages/libtpu/libtpu.so" beside ".../site-packages/libtpu-0.0.42.1.dist-info".
std::string VersionOf(const std::string& path) {
  const std::string folder = absl::StrCat(path.substr(0, path.rfind('/') + 1), "..");
  for (const std::string& info : Matches(absl::StrCat(folder, "/libtpu-*.dist-info"))) {
    absl::string_view name = absl::string_view(info).substr(info.rfind('/') + 1);
    if (absl::ConsumePrefix(&name, "libtpu-") && absl::ConsumeSuffix(&name, ".dist-info"))
      return absl::StrCat("libtpu ", name);
  }
  return path.substr(path.rfind('/') + 1);
}

// Folders above lib/python3.*: of the environment, of each python3 on the path, of the user, of the system.
std::vector<std::string> Prefixes() {
  std::vector<std::string> prefixes;
  if (const std::string environment = Environment("VIRTUAL_ENV"); !environment.empty())
    prefixes.push_back(environment);
  for (const absl::string_view folder : absl::StrSplit(Environment("PATH"), ':', absl::SkipEmpty())) {
    if (IsFile(absl::StrCat(folder, "/python3"))) prefixes.push_back(absl::StrCat(folder, "/.."));
  }
  if (const std::string home = Environment("HOME"); !home.empty())
    prefixes.push_back(absl::StrCat(home, "/.local"));
  prefixes.push_back("/usr/local");
  return prefixes;
}

}  // namespace

absl::StatusOr<CompilerLibrary> FindCompilerLibrary(const std::string& named) {
  const std::string wanted = named.empty() ? Environment("TWINFORGE_LIBTPU") : named;
  if (!wanted.empty()) {
    const std::string path = IsFolder(wanted) ? absl::StrCat(wanted, "/", kFile) : wanted;
    if (!IsFile(path))
      return Error(2101, path, "is no file, and was to be the TPU compiler's library", kInstall);
    // Without a slash the loader would look for it elsewhere.
    const std::string exact = absl::StrContains(path, '/') ? path : absl::StrCat("./", path);
    return CompilerLibrary{.path = exact, .version = VersionOf(exact)};
  }
  for (const std::string& prefix : Prefixes()) {
    for (const char* const packages : {"site-packages", "dist-packages"}) {
      const std::vector<std::string> found =
          Matches(absl::StrCat(prefix, "/lib/python3*/", packages, "/libtpu/", kFile));
      if (!found.empty()) return CompilerLibrary{.path = found[0], .version = VersionOf(found[0])};
    }
  }
  return Error(2101, "the TPU compiler", "libtpu.so is in no Python environment of this machine", kInstall);
}

}  // namespace twinforge
