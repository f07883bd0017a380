#include "reference/stablehlo/computed_in.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "ir/rewriter.h"
#include "ir/verify.h"
#include "weights/build.h"

namespace twinforge {

absl::StatusOr<Graph> ComputedIn(const Graph& graph, DType dtype) {
  Graph result = graph;
  Rewriter rewriter(result, "");
  for (const Node& node : graph.nodes()) {
    if (node.op != OpKind::kParam) continue;
    return Error(1620, node.path, absl::StrCat("primitives are of the types that they say, not ", Name(dtype)),
                 "leave the type out");
  }
  for (const auto& [role, param] : graph.params()) {
    if (!IsFloat(param.type.dtype) || param.type.dtype == dtype) continue;
    ParamType type = param.type;
    type.dtype = dtype;
    rewriter.SetParam(role, std::move(type), Cast(param.program, dtype));
  }
  rewriter.InferTypes();
  TWIN_RETURN_IF_ERROR(Verify(result));
  return result;
}

}  // namespace twinforge
