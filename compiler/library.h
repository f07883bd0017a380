// Where the TPU compiler's library lies: a file that the user names, or where pip put it.
//
// Nothing is run to find out: the folders of $VIRTUAL_ENV and of each python3 on $PATH are looked into, then
// the user's and the system's own.
#ifndef TWINFORGE_COMPILER_LIBRARY_H_
#define TWINFORGE_COMPILER_LIBRARY_H_

#include <string>

#include "absl/status/statusor.h"

namespace twinforge {

struct CompilerLibrary {
  std::string path;     // absolute where it was found, as given where it was named
  std::string version;  // "libtpu 0.0.42.1" where pip installed it; else the file's name
};

// `named`: a file, or a folder that holds libtpu.so; empty: $TWINFORGE_LIBTPU, then the folders above. TF2101
// (with the line that installs it) where there is none.
absl::StatusOr<CompilerLibrary> FindCompilerLibrary(const std::string& named);

}  // namespace twinforge

#endif  // TWINFORGE_COMPILER_LIBRARY_H_
