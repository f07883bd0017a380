// The TPU compiler through the PJRT C interface: one program, compiled for a topology without a device.
//
// Written against interface 0.90 (third_party/pjrt); 0.112 was called with it. The library may be any file,
// so what it hands over is checked: the interface's version, that each function is there, sizes and pointers
// of each string. It may abort all the same: call this where that does no harm (apart.h).
#ifndef TWINFORGE_COMPILER_PJRT_PLUGIN_H_
#define TWINFORGE_COMPILER_PJRT_PLUGIN_H_

#include <functional>
#include <string>

#include "compiler/answer.pb.h"
#include "compiler/topology.h"

namespace twinforge {

struct PluginQuestion {
  std::string library;  // the file
  TpuTopology topology;
  std::string program;          // StableHLO text
  std::string compile_options;  // serialised
};

// Loads the library into this process, and leaves it there. A failure is a stage and the library's own words
// in the answer. `begins` is called before each stage, so that whoever looks on knows where a crash happened.
// Sets environment variables that the library reads.
CompilerAnswer AskPlugin(const PluginQuestion& question,
                         const std::function<void(CompilerAnswer::Stage)>& begins);

}  // namespace twinforge

#endif  // TWINFORGE_COMPILER_PJRT_PLUGIN_H_
