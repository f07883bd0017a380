// Flags that the TPU compiler refuses are mistakes of the command line, not findings about a program.
#ifndef TWINFORGE_COMPILER_OPTION_NAMES_H_
#define TWINFORGE_COMPILER_OPTION_NAMES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "compiler/compile_options.h"

namespace twinforge {

// TF2107 where `answer`, what the compiler of the library at `path` says in place of a program, is that one
// of `flags` has a name it does not know, and then with the nearest that it does, or a value it does not
// take.
absl::Status CheckOptions(absl::string_view answer, const CompilerFlags& flags, const std::string& path);

// Names of flags that stand in a library, "xla_msa_enable", ascending. Reads the whole file, a piece at a
// time; empty where it cannot be read.
std::vector<std::string> OptionNames(const std::string& path);

}  // namespace twinforge

#endif  // TWINFORGE_COMPILER_OPTION_NAMES_H_
