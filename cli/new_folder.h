// What a verb makes appears whole or not at all, and in the place of nothing.
#ifndef TWINFORGE_CLI_NEW_FOLDER_H_
#define TWINFORGE_CLI_NEW_FOLDER_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "exporters/file_system.h"

namespace twinforge {

// All of `bytes` to the open file `fd`, and on to the disk. `path` names it in what goes wrong.
absl::Status WriteAndSync(FileSystem& files, int fd, const std::string& path, absl::string_view bytes);

// A file of these bytes, synced before it has its name. TF1608 where something has it already; TF1605 to
// TF1607 where it cannot be made, and then nothing is left.
absl::Status WriteNewFile(const std::string& path, absl::string_view bytes);

// A folder of files, (name, bytes). TF1608 where something has its name, or that of a run that was cut short.
absl::Status WriteNewFolder(const std::vector<std::pair<std::string, std::string>>& contents,
                            const std::string& path);

}  // namespace twinforge

#endif  // TWINFORGE_CLI_NEW_FOLDER_H_
