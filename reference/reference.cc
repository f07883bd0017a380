#include "reference/reference.h"

#include <utility>

#include "base/status_macros.h"
#include "reference/jax_emitter.h"
#include "reference/kernel_files.h"
#include "reference/program.h"
#include "reference/torch_emitter.h"

namespace twinforge {

absl::StatusOr<std::vector<ReferenceFile>> ReferenceFiles(const Graph& graph,
                                                          const std::map<std::string, WeightPtr>& programs) {
  TWIN_ASSIGN_OR_RETURN(const ReferenceProgram program, MakeReferenceProgram(graph, programs));
  JaxEmitter jax(program);
  std::vector<ReferenceFile> files = {{"reference/model.py", jax.Module()},
                                      {"reference/model_torch.py", TorchEmitter(program).Module()}};
  for (ReferenceFile& file : KernelFiles(jax.kernels())) files.push_back(std::move(file));
  return files;
}

}  // namespace twinforge
