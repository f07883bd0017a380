#include "onnx/describe.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "onnx/kernels/kernel.h"
#include "onnx/onnx-ml.pb.h"
#include "onnx/operators.h"
#include "onnx/tensor_data.h"
#include "onnx/value_file.h"

namespace twinforge {
namespace {

void AddRefusal(const OnnxNode& node, const std::string& name, OnnxDescription& out) {
  if (node.function != nullptr) return;
  const OperatorInfo* info = FindOperator(node.domain, node.proto->op_type());
  if (FindKernel(node.domain, node.proto->op_type()) == nullptr) {
    out.refused[name] = info == nullptr ? "not an operator of the standard" : "no meaning here";
  } else if (info != nullptr && SinceVersion(*info, node.opset) == 0) {
    out.refused[name] = node.opset == 0 ? "its operator set is not imported"
                                        : absl::StrCat("not in operator set ", node.opset);
  }
}

void AddGraph(const OnnxGraph& graph, int64_t depth, OnnxDescription& out) {
  out.depth = std::max(out.depth, depth);
  for (const OnnxNode& node : graph.nodes) {
    const std::string name = OperatorName(node.domain, node.proto->op_type());
    ++out.nodes;
    ++out.operators[name];
    AddRefusal(node, name, out);
    for (const auto& [attribute, subgraph] : node.subgraphs) {
      ++out.graphs;
      AddGraph(*subgraph, depth + 1, out);
    }
  }
  for (const OnnxInitializer& initializer : graph.initializers) {
    ++(initializer.dense != nullptr ? out.initializers : out.sparse_initializers);
    if (initializer.dense == nullptr) continue;
    const ElementType type =
        ElementTypeFromCode(initializer.dense->data_type()).value_or(ElementType::kUndefined);
    const Shape shape(initializer.dense->dims().begin(), initializer.dense->dims().end());
    out.bytes_by_type[std::string(ElementTypeName(type))] += PackedBytes(type, ElementCount(shape));
  }
}

void CountShapes(const OnnxGraph& graph, const OnnxFacts& facts, OnnxShapes& out) {
  for (const OnnxNode& node : graph.nodes) {
    for (const int32_t slot : node.outputs) {
      if (slot < 0) continue;
      ++out.values;
      out.full += facts.Of(graph, slot).FullShape() ? 1 : 0;
    }
  }
}

}  // namespace

OnnxShapes DescribeShapes(const OnnxModel& model, const OnnxFacts& facts) {
  OnnxShapes out;
  CountShapes(model.graph, facts, out);
  for (const auto& graph : model.subgraphs) CountShapes(*graph, facts, out);
  for (const auto& function : model.functions) CountShapes(*function->body, facts, out);
  for (const int32_t slot : model.graph.outputs)
    out.outputs.emplace_back(model.graph.names[slot], facts.Of(model.graph, slot));
  return out;
}

OnnxDescription Describe(const OnnxModel& model) {
  OnnxDescription out;
  const ::onnx::ModelProto& proto = *model.proto;
  out.ir_version = proto.ir_version();
  out.producer = proto.producer_name();
  out.producer_version = proto.producer_version();
  out.domain = proto.domain();
  for (const auto& [domain, version] : model.opsets)
    out.opsets[domain.empty() ? "ai.onnx" : domain] = version;
  AddGraph(model.graph, 1, out);
  for (const auto& function : model.functions) {
    out.functions.push_back(OperatorName(NormalDomain(function->proto->domain()), function->proto->name()));
    AddGraph(*function->body, 1, out);
  }
  absl::flat_hash_set<int32_t> initial;
  for (const OnnxInitializer& initializer : model.graph.initializers) initial.insert(initializer.slot);
  for (size_t i = 0; i < model.graph.inputs.size(); ++i) {
    const auto& input = proto.graph().input(static_cast<int>(i));
    if (initial.count(model.graph.inputs[i]) == 0)
      out.inputs.emplace_back(input.name(), TypeText(input.type()));
  }
  for (const auto& output : proto.graph().output())
    out.outputs.emplace_back(output.name(), TypeText(output.type()));
  out.external_files = model.files->locations();
  for (const auto& entry : proto.metadata_props()) out.metadata_keys.push_back(entry.key());
  out.quantisation_annotations = proto.graph().quantization_annotation_size();
  out.warnings = model.warnings;
  return out;
}

}  // namespace twinforge
