// The options that go to the TPU compiler with a program, in the form that it reads them.
#ifndef TWINFORGE_COMPILER_COMPILE_OPTIONS_H_
#define TWINFORGE_COMPILER_COMPILE_OPTIONS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace twinforge {

// Flags of the compiler by name: {"xla_msa_enable", "false"}.
using CompilerFlags = std::map<std::string, std::string>;

// "NAME=VALUE" each, over the defaults. By default xla_msa_enable is false: operands stay in the chip's
// memory, which is what the recorded tables (docs/cost_compiler.md) were compiled with; placement into VMEM
// makes the cycles of single ops depend on their neighbours. TF2107 for what is no NAME=VALUE.
absl::StatusOr<CompilerFlags> ParseCompilerFlags(const std::vector<std::string>& words);

// Into how many parts the module's attribute (`mhlo.num_partitions = 8 : i32`) says that it is split; 1
// where it says nothing. TF2106 for a number that is none.
absl::StatusOr<int64_t> PartitionsOf(absl::string_view program);

// XLA's CompileOptionsProto for one replica of `partitions`. Shardings in Shardy's dialect are propagated by
// it, those of `mhlo.sharding` by the older pass; `program` tells which.
std::string SerializedCompileOptions(absl::string_view program, int64_t partitions,
                                     const CompilerFlags& flags);

}  // namespace twinforge

#endif  // TWINFORGE_COMPILER_COMPILE_OPTIONS_H_
