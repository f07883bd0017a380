// What `compile` prints of a record, as JSON and for people.
#ifndef TWINFORGE_CLI_COMPILE_REPORT_H_
#define TWINFORGE_CLI_COMPILE_REPORT_H_

#include <string>

#include "cli/verb.h"
#include "compiler/record.pb.h"

namespace twinforge {

Json CompileJson(const CompileRecord& record);

// Each module's figures, then what stands out: refusals, copies, layouts that the tile rule did not foresee,
// ops without an estimate; last what the rewrite changed, where there is a source.
std::string CompileText(const CompileRecord& record);

// Bytes of a module's arguments as cost/shape.h predicts them; 0 where an array is not predicted.
int64_t PredictedArgumentBytes(const CompiledModule& module);

}  // namespace twinforge

#endif  // TWINFORGE_CLI_COMPILE_REPORT_H_
