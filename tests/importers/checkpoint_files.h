// Safetensors files made in place by tests, sound or broken on purpose.
#ifndef TWINFORGE_TESTS_IMPORTERS_CHECKPOINT_FILES_H_
#define TWINFORGE_TESTS_IMPORTERS_CHECKPOINT_FILES_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_replace.h"
#include "base/diagnostic.h"

namespace twinforge {

// A folder that goes away with the object.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "twinforge_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
    path_ = std::filesystem::canonical(path_).string();
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

  void Write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories(std::filesystem::path(*this / name).parent_path());
    std::ofstream(*this / name, std::ios::binary) << bytes;
  }
  // What a user would read, with the folder's name replaced by DIR.
  std::string Text(const absl::Status& status) const {
    if (status.ok()) return "ok";
    return absl::StrReplaceAll(Render(status), {{path_, "DIR"}});
  }

 private:
  std::string path_;
};

// The eight bytes before a header.
inline std::string Length(uint64_t n) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(n >> (8 * i)));
  return bytes;
}

// A file of `header` and then `data`, or as many zeros.
inline std::string File(const std::string& header, const std::string& data) {
  return Length(header.size()) + header + data;
}
inline std::string File(const std::string& header, int64_t zeros) {
  return File(header, std::string(static_cast<size_t>(zeros), '\0'));
}

// "a": {"dtype": "U8", "shape": [N], "data_offsets": [begin, begin + N]}
inline std::string Bytes(const std::string& name, int64_t begin, int64_t end) {
  return "\"" + name + "\":{\"dtype\":\"U8\",\"shape\":[" + std::to_string(end - begin) +
         "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

}  // namespace twinforge

#endif  // TWINFORGE_TESTS_IMPORTERS_CHECKPOINT_FILES_H_
