#include "eval/retype.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "eval/params.h"
#include "ir/rewriter.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "weights/build.h"
#include "weights/rounding.h"

namespace twinforge {

DType DTypeOfMost(const Graph& graph) {
  std::map<DType, int64_t> bytes;
  for (const auto& [role, param] : graph.params()) {
    bytes[param.type.dtype] += param.program->element_count() * ElementBytes(param.type.dtype);
  }
  DType most = DType::kF32;
  int64_t largest = 0;
  for (const auto& [dtype, count] : bytes) {
    if (count > largest) most = dtype;
    largest = std::max(largest, count);
  }
  return most;
}

namespace {

class Retyper {
 public:
  Retyper(const Graph& graph, DType dtype) : all_(dtype == DType::kF64 || dtype == DType::kF32), to_(dtype) {
    most_ = DTypeOfMost(graph);
  }

  DType Of(DType dtype) const { return IsFloat(dtype) && (all_ || dtype == most_) ? to_ : dtype; }

  Type Of(Type type) const {
    type.dtype = Of(type.dtype);
    return type;
  }

  // A type that stands in attributes; what does not parse is left for Verify.
  std::string Of(const std::string& text) const {
    absl::StatusOr<Type> type = ParseType(text);
    return type.ok() ? Text(Of(*type)) : text;
  }

  // Whether the attributes say a type, which is then the new one.
  bool Change(OpAttrs& attrs) const {
    switch (attrs.attrs_case()) {
      case OpAttrs::kConstant:
        attrs.mutable_constant()->set_type(Of(attrs.constant().type()));
        return true;
      case OpAttrs::kIota:
        attrs.mutable_iota()->set_type(Of(attrs.iota().type()));
        return true;
      case OpAttrs::kBroadcast:
        attrs.mutable_broadcast()->set_type(Of(attrs.broadcast().type()));
        return true;
      case OpAttrs::kType:
        attrs.mutable_type()->set_type(Of(attrs.type().type()));
        return true;
      case OpAttrs::kOpaque:
        attrs.mutable_opaque()->set_type(Of(attrs.opaque().type()));
        return true;
      case OpAttrs::kConvert:
        if (const std::optional<DType> dtype = DTypeFromName(attrs.convert().dtype())) {
          attrs.mutable_convert()->set_dtype(std::string(Name(Of(*dtype))));
        }
        return true;
      default:
        return false;
    }
  }

 private:
  bool all_;
  DType to_, most_ = DType::kF32;
};

}  // namespace

absl::StatusOr<Graph> Retyped(const Graph& graph, DType dtype, bool unrounded) {
  Graph result = graph;
  Rewriter rewriter(result, "");
  const Retyper retyper(graph, dtype);
  // What primitives read is of the type that they say; a composite converts its parameters itself.
  std::set<std::string> read_as_they_are;
  for (const Node& node : graph.nodes()) {
    if (node.op == OpKind::kParam) read_as_they_are.insert(node.path);
  }
  for (const auto& [role, param] : graph.params()) {
    if (!IsFloat(param.type.dtype)) continue;
    ParamType type = param.type;
    type.dtype = read_as_they_are.count(role) > 0 ? retyper.Of(param.type.dtype) : dtype;
    const WeightPtr program = unrounded ? Unrounded(param.program) : param.program;
    WeightPtr cast = Cast(program, type.dtype);
    rewriter.SetParam(role, std::move(type), std::move(cast));
  }
  for (const Node& node : graph.nodes()) {
    if (node.op == OpKind::kInput) {
      rewriter.SetInputType(node.id, retyper.Of(node.type));
      continue;
    }
    OpAttrs attrs = *node.attrs;
    if (retyper.Change(attrs)) rewriter.SetAttrs(node.id, std::move(attrs));
  }
  rewriter.InferTypes();
  TWIN_RETURN_IF_ERROR(Verify(result));
  return result;
}

}  // namespace twinforge
