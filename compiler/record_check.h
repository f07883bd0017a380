// Whether a compile record can be true: what it says of itself is recomputed, and figures that no program
// gives are refused. That it is of some model's programs is asked elsewhere (cli/compile_programs.h).
//
//   cycles: -5                                  TF2111
//   topology: "v6e:2x2"   chip: "v5e"           TF2111
//   copy_cycles: 700   copies of 300 and 300    TF2111
#ifndef TWINFORGE_COMPILER_RECORD_CHECK_H_
#define TWINFORGE_COMPILER_RECORD_CHECK_H_

#include <string>

#include "absl/status/status.h"
#include "compiler/record.pb.h"

namespace twinforge {

// TF2111 where it cannot be; the place names the part. Of a model's record (one with a phase) every part has
// a kind of its own and is split as the record says. Cycles are the compiler's word and cannot be recomputed
// without it; but a layer reads its weights, which takes a cycle for each 16 KiB on no chip that there is.
absl::Status CheckCompileRecord(const CompileRecord& record, const std::string& place);

}  // namespace twinforge

#endif  // TWINFORGE_COMPILER_RECORD_CHECK_H_
