#include "onnx/model.h"

#include "absl/strings/str_cat.h"
#include "base/json_reader.h"
#include "onnx/onnx-ml.pb.h"

namespace twinforge {

DeclaredTensor DeclaredOutput(const OnnxGraph& graph, size_t output) {
  DeclaredTensor declared;
  if (graph.proto == nullptr || static_cast<int>(output) >= graph.proto->output_size()) return declared;
  const auto& type = graph.proto->output(static_cast<int>(output)).type().tensor_type();
  const std::optional<ElementType> known = ElementTypeFromCode(type.elem_type());
  if (known && *known != ElementType::kUndefined) declared.type = *known;
  for (const auto& dim : type.shape().dim()) declared.shape.push_back(std::max<int64_t>(dim.dim_value(), 0));
  return declared;
}

std::string OperatorName(absl::string_view domain, absl::string_view op) {
  return domain.empty() ? std::string(op) : absl::StrCat(domain, ".", op);
}

std::string NormalDomain(absl::string_view domain) {
  return domain == "ai.onnx" ? std::string() : std::string(domain);
}

std::string NodeText(const ::onnx::NodeProto& node) {
  if (!node.name().empty()) return absl::StrCat("node ", JsonQuoted(node.name(), 200));
  const std::string output = node.output_size() > 0 ? node.output(0) : std::string();
  return absl::StrCat("node ", JsonQuoted(node.op_type(), 60), " that makes ", JsonQuoted(output, 200));
}

}  // namespace twinforge
