// The compile record beside a twin: compile.record.textproto.
#ifndef TWINFORGE_COMPILER_RECORD_FILE_H_
#define TWINFORGE_COMPILER_RECORD_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compiler/record.pb.h"

namespace twinforge {

inline constexpr char kCompileRecordName[] = "compile.record.textproto";

// The same record gives the same text.
std::string CompileRecordText(const CompileRecord& record);

// TF2108 for a text that is no record: the place says line and column.
absl::StatusOr<CompileRecord> ParseCompileRecord(absl::string_view text, const std::string& place);

// Sums over all modules, each times its count; saturating.
struct CompiledSums {
  int64_t cycles = 0;
  int64_t argument_bytes = 0;
  int64_t output_bytes = 0;
  int64_t temp_bytes = 0;  // the largest of one module: they run one after the other
  int64_t copies = 0;
  int64_t copy_cycles = 0;
  int64_t collectives = 0;
  int64_t arguments = 0;      // arrays
  int64_t padding_bytes = 0;  // of arguments
  int64_t uncounted = 0;
  int64_t refused = 0;  // modules that the compiler refuses
};
CompiledSums SumsOf(const CompiledModel& model);

}  // namespace twinforge

#endif  // TWINFORGE_COMPILER_RECORD_FILE_H_
