// y = x kernel + bias
#include "ir/ops/common.h"
#include "ir/ops/composite.h"
#include "ir/ops/shapes.h"

namespace twinforge {
namespace {

absl::StatusOr<Type> Infer(const Graph& graph, const Node& node) {
  return Through(graph, node, "kernel", "kernel");
}

NodeId Decompose(Emitter& emit) { return Project(emit, emit.operand(), "kernel", "bias"); }

}  // namespace

const CompositeOp kLinearOp = {Infer, NothingToVerify, Decompose};

}  // namespace twinforge
