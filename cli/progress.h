// Progress of a long verb, on stderr: a line that renews itself on a terminal, one line per
// ten seconds elsewhere, nothing with --progress none.
#ifndef TWINFORGE_CLI_PROGRESS_H_
#define TWINFORGE_CLI_PROGRESS_H_

#include <functional>
#include <string>

#include "exporters/exporter.h"

namespace twinforge {

// `mode`: auto, tty, plain or none.
std::function<void(const Progress&)> MakeProgress(const std::string& mode, const std::string& what);

}  // namespace twinforge

#endif  // TWINFORGE_CLI_PROGRESS_H_
