#include "reference/kernel_files.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/embedded.h"

namespace twinforge {

absl::Span<const EmbeddedFile> Embedded_kernels();

std::vector<ReferenceFile> KernelFiles(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  std::set<std::string> wanted = {"__init__.py", "blocks.py", "blocks.csv"};
  for (const std::string& name : names) wanted.insert(absl::StrCat(name, ".py"));
  if (wanted.count("strided_nm_matmul.py") > 0) wanted.insert("nm_pack.py");
  std::vector<ReferenceFile> files;
  for (const EmbeddedFile& file : Embedded_kernels()) {
    if (wanted.count(std::string(file.name)) > 0)
      files.push_back({absl::StrCat("reference/kernels/", file.name), std::string(file.text)});
  }
  TWIN_CHECK(files.size() == wanted.size(), "every kernel that is called is embedded");
  return files;
}

}  // namespace twinforge
