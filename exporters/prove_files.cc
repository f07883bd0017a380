#include "exporters/prove_files.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace twinforge {
namespace {

namespace fs = std::filesystem;

absl::string_view KindName(fs::file_type kind) {
  switch (kind) {
    case fs::file_type::directory:
      return "a folder";
    case fs::file_type::symlink:
      return "a symbolic link";
    case fs::file_type::fifo:
      return "a FIFO";
    case fs::file_type::socket:
      return "a socket";
    case fs::file_type::block:
    case fs::file_type::character:
      return "a device";
    default:
      return "a file";
  }
}

// What tools lay into a folder and no loader reads; only as what it is.
bool IsHarmless(const std::string& name, fs::file_type kind) {
  static const std::map<std::string, std::set<fs::file_type>> kHarmless = {
      {".git", {fs::file_type::directory, fs::file_type::regular}},  // a worktree's is a file
      {".gitattributes", {fs::file_type::regular}},
      {".gitignore", {fs::file_type::regular}},
      {".cache", {fs::file_type::directory}},
      {".DS_Store", {fs::file_type::regular}},
      {".journal", {fs::file_type::regular}},
      {"compile.record.textproto", {fs::file_type::regular}},  // what the TPU compiler said of the twin
  };
  const auto found = kHarmless.find(name);
  return found != kHarmless.end() && found->second.count(kind) > 0;
}

class Walk {
 public:
  Walk(const TwinManifest& manifest, const std::string& root) : root_(root) {
    known_.insert(kManifestName);
    for (const ManifestFile& file : manifest.files) known_.insert(file.name);
    for (const std::string& file : known_) {
      for (size_t at = file.find('/'); at != std::string::npos; at = file.find('/', at + 1))
        on_the_way_.insert(file.substr(0, at));
    }
  }

  std::vector<ProofRow> Run() {
    Look("");
    std::sort(rows_.begin(), rows_.end(),
              [](const ProofRow& a, const ProofRow& b) { return a.subject < b.subject; });
    return std::move(rows_);
  }

 private:
  void Look(const std::string& below) {
    std::error_code failed;
    fs::directory_iterator at(below.empty() ? root_ : absl::StrCat(root_, "/", below), failed);
    for (; !failed && at != fs::directory_iterator(); at.increment(failed)) {
      const std::string name = at->path().filename().string();
      Judge(below.empty() ? name : absl::StrCat(below, "/", name), *at);
    }
    if (failed) {
      rows_.push_back({"files", below.empty() ? root_ : below, Verdict::kIncomplete,
                       absl::StrCat("the folder cannot be listed: ", failed.message())});
    }
  }

  void Judge(const std::string& name, const fs::directory_entry& entry) {
    std::error_code failed;
    const fs::file_type kind = entry.symlink_status(failed).type();
    if (known_.count(name) > 0) return;  // what it is, is found when it is read
    if (on_the_way_.count(name) > 0 && kind == fs::file_type::directory) return Look(name);
    if (IsHarmless(name, kind)) return;
    if (entry.path().filename() == "__pycache__") {
      rows_.push_back(
          {"files", name, Verdict::kRefuted,
           "it holds bytecode, which Python may run in the place of a file that is proven: delete it "
           "(PYTHONDONTWRITEBYTECODE=1 keeps it from being made)"});
      return;
    }
    rows_.push_back(
        {"files", name, Verdict::kRefuted,
         absl::StrCat("it is ", KindName(kind),
                      " that is not in the manifest, and a loader may take it for part of the model")});
  }

  const std::string& root_;
  std::set<std::string> known_;
  std::set<std::string> on_the_way_;  // folders that lead to files of the manifest
  std::vector<ProofRow> rows_;
};

}  // namespace

std::vector<ProofRow> Strangers(const TwinManifest& manifest, const std::string& root) {
  return Walk(manifest, root).Run();
}

}  // namespace twinforge
