#include "reference/reference.h"

#include "base/status_macros.h"
#include "reference/jax_emitter.h"
#include "reference/program.h"
#include "reference/torch_emitter.h"

namespace twinforge {

absl::StatusOr<std::vector<ReferenceFile>> ReferenceFiles(const Graph& graph,
                                                          const std::map<std::string, WeightPtr>& programs) {
  TWIN_ASSIGN_OR_RETURN(const ReferenceProgram program, MakeReferenceProgram(graph, programs));
  return std::vector<ReferenceFile>{{"reference/model.py", JaxEmitter(program).Module()},
                                    {"reference/model_torch.py", TorchEmitter(program).Module()}};
}

}  // namespace twinforge
