#include "onnx/run.h"

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "onnx/kernels/kernel.h"
#include "onnx/onnx-ml.pb.h"
#include "onnx/op_call.h"
#include "onnx/operators.h"
#include "onnx/tensor_data.h"

namespace twinforge {
namespace {

constexpr int kDeepestCalls = 500;  // graphs in graphs and functions in functions, on our stack

std::string NodePlace(const OnnxNode& node) {
  return absl::StrCat(NodeText(*node.proto), " (",
                      JsonQuoted(OperatorName(node.domain, node.proto->op_type()), 100), ")");
}

// What is wrong with a call before the kernel sees it.
absl::Status CheckCall(const OnnxNode& node, const KernelRow& row, const std::vector<OnnxValue>& inputs) {
  int least = row.min_inputs, most = -1;
  if (const OperatorInfo* info = FindOperator(row.domain, row.name)) {
    least = info->min_inputs;
    most = info->max_inputs;
    if (static_cast<int>(node.outputs.size()) < info->min_outputs ||
        (info->max_outputs >= 0 && static_cast<int>(node.outputs.size()) > info->max_outputs)) {
      return Error(2008, "", absl::StrCat("has ", node.outputs.size(), " outputs"));
    }
  }
  if (most >= 0 && static_cast<int>(inputs.size()) > most) {
    return Error(2008, "", absl::StrCat("takes ", inputs.size(), " inputs; ", most, " are the most"));
  }
  for (int i = 0; i < least; ++i) {
    if (i >= static_cast<int>(inputs.size()) || (inputs[i].is_nothing() && !row.any_value)) {
      return Error(2008, "", absl::StrCat("lacks input ", i));
    }
  }
  for (size_t i = 0; i < inputs.size() && !row.any_value; ++i) {
    if (!inputs[i].is_nothing() && !inputs[i].is_tensor())
      return Error(2008, "", absl::StrCat("input ", i, " is no tensor"));
  }
  return absl::OkStatus();
}

absl::Status NoMeaning(const OnnxNode& node) {
  const OperatorInfo* info = FindOperator(node.domain, node.proto->op_type());
  if (info == nullptr) {
    return Error(2007, "", absl::StrCat("has no meaning here (operator set ", node.opset, " of its domain)"),
                 "a function of that name in the model would be its meaning");
  }
  return Error(2007, "", absl::StrCat("version ", SinceVersion(*info, node.opset), " has no meaning here"));
}

}  // namespace

const ::onnx::AttributeProto* FindAttribute(const OnnxNode& node, const OnnxAttributes* around,
                                            absl::string_view name) {
  for (const ::onnx::AttributeProto& attribute : node.proto->attribute()) {
    if (attribute.name() != name) continue;
    if (attribute.ref_attr_name().empty()) return &attribute;
    if (around == nullptr) return nullptr;
    const auto found = around->find(attribute.ref_attr_name());
    return found == around->end() ? nullptr : found->second;
  }
  return nullptr;
}

bool OnnxRunner::Spend(double work) {
  work_ += work;
  return work_ <= limits_.work;
}

absl::StatusOr<OnnxValue> OnnxRunner::InitialValue(const OnnxGraph& graph,
                                                   const OnnxInitializer& initializer) {
  const std::string place =
      absl::StrCat(model_.path, ": initializer ", JsonQuoted(graph.names[initializer.slot], 200));
  if (initializer.dense != nullptr) {
    TWIN_ASSIGN_OR_RETURN(OnnxTensor tensor,
                          TensorFromProto(*initializer.dense, model_.proto, *model_.files, place));
    return OnnxValue(std::move(tensor));
  }
  TWIN_ASSIGN_OR_RETURN(OnnxTensor tensor,
                        DenseFromSparse(*initializer.sparse, *model_.files, limits_.elements, place));
  return OnnxValue(std::move(tensor));
}

absl::Status OnnxRunner::SetInitializers(OnnxFrame& frame, bool keep) {
  for (const OnnxInitializer& initializer : frame.graph->initializers) {
    OnnxValue& slot = frame.slots[initializer.slot];
    if (!slot.is_nothing()) continue;  // an input that the caller gave
    const auto kept = kept_.find(&initializer);
    if (kept != kept_.end()) {
      slot = kept->second;
      continue;
    }
    TWIN_ASSIGN_OR_RETURN(slot, InitialValue(*frame.graph, initializer));
    if (keep) kept_[&initializer] = slot;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<OnnxValue>> OnnxRunner::Run(
    const absl::flat_hash_map<std::string, OnnxValue>& inputs) {
  OnnxFrame frame{&model_.graph, std::vector<OnnxValue>(model_.graph.names.size()), nullptr};
  for (const int32_t slot : model_.graph.inputs) {
    const auto given = inputs.find(std::string(model_.graph.names[slot]));
    if (given != inputs.end()) frame.slots[slot] = given->second;
  }
  TWIN_RETURN_IF_ERROR(SetInitializers(frame, false));
  for (const int32_t slot : model_.graph.inputs) {
    if (!frame.slots[slot].is_nothing()) continue;
    return Error(2009, absl::StrCat(model_.path, ": input ", JsonQuoted(model_.graph.names[slot], 200)),
                 "is not given");
  }
  return RunFrame(frame);
}

absl::StatusOr<std::vector<OnnxValue>> OnnxRunner::RunSubgraph(const OnnxGraph& graph,
                                                               std::vector<OnnxValue> inputs,
                                                               OnnxFrame& around) {
  if (inputs.size() > graph.inputs.size()) {
    return Error(2008, "",
                 absl::StrCat("a subgraph of ", graph.inputs.size(), " inputs is given ", inputs.size()));
  }
  OnnxFrame frame{&graph, std::vector<OnnxValue>(graph.names.size()), around.attributes};
  for (const auto& [outer, inner] : graph.captures) frame.slots[inner] = around.slots[outer];
  for (size_t i = 0; i < inputs.size(); ++i) frame.slots[graph.inputs[i]] = std::move(inputs[i]);
  TWIN_RETURN_IF_ERROR(SetInitializers(frame, true));
  return RunFrame(frame);
}

absl::StatusOr<std::vector<OnnxValue>> OnnxRunner::RunFrame(OnnxFrame& frame) {
  if (++depth_ > kDeepestCalls) return Error(2005, model_.path, "calls graphs and functions too deeply");
  const OnnxGraph& graph = *frame.graph;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const OnnxNode& node = graph.nodes[i];
    TWIN_RETURN_IF_ERROR(RunNode(node, frame));
    const auto release = [&](int32_t slot) {
      if (slot >= 0 && graph.last_use[slot] == static_cast<int32_t>(i)) frame.slots[slot] = OnnxValue();
    };
    for (const int32_t slot : node.inputs) release(slot);
    for (const int32_t slot : node.outputs) release(slot);
  }
  --depth_;
  std::vector<OnnxValue> outputs;
  for (const int32_t slot : graph.outputs) outputs.push_back(frame.slots[slot]);
  return outputs;
}

absl::Status OnnxRunner::RunNode(const OnnxNode& node, OnnxFrame& frame) {
  if (++nodes_ > limits_.nodes) {
    return Error(1902, absl::StrCat(model_.path, ": ", NodePlace(node)),
                 absl::StrCat("after ", limits_.nodes, " nodes the run goes on"));
  }
  std::vector<OnnxValue> inputs;
  for (const int32_t slot : node.inputs) inputs.push_back(slot < 0 ? OnnxValue() : frame.slots[slot]);
  const absl::Status done = node.function != nullptr ? CallFunction(node, std::move(inputs), frame)
                                                     : CallKernel(node, std::move(inputs), frame);
  if (done.ok()) return done;
  const std::optional<Diagnostic> said = DiagnosticOf(done);
  // A node inside another has said its place; the outer ones are put in front of it.
  return said && said->place.empty()
             ? Error(said->code, absl::StrCat(model_.path, ": ", NodePlace(node)), said->message, said->hint)
             : done;
}

absl::Status OnnxRunner::CallFunction(const OnnxNode& node, std::vector<OnnxValue> inputs, OnnxFrame& frame) {
  const OnnxFunction& function = *node.function;
  const OnnxGraph& body = *function.body;
  if (inputs.size() > body.inputs.size() || node.outputs.size() > body.outputs.size()) {
    return Error(2008, "", "the function has fewer inputs or outputs than the node");
  }
  OnnxAttributes attributes;
  for (const ::onnx::AttributeProto& given : function.proto->attribute_proto())
    attributes[given.name()] = &given;
  for (const ::onnx::AttributeProto& given : node.proto->attribute()) {
    const ::onnx::AttributeProto* value = FindAttribute(node, frame.attributes, given.name());
    if (value != nullptr) attributes[given.name()] = value;
  }
  OnnxFrame inside{&body, std::vector<OnnxValue>(body.names.size()), &attributes};
  for (size_t i = 0; i < inputs.size(); ++i) inside.slots[body.inputs[i]] = std::move(inputs[i]);
  TWIN_ASSIGN_OR_RETURN(const std::vector<OnnxValue> outputs, RunFrame(inside));
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] >= 0) frame.slots[node.outputs[i]] = outputs[i];
  }
  return absl::OkStatus();
}

absl::Status OnnxRunner::CallKernel(const OnnxNode& node, std::vector<OnnxValue> inputs, OnnxFrame& frame) {
  const KernelRow* row = FindKernel(node.domain, node.proto->op_type());
  if (row == nullptr) return NoMeaning(node);
  const OperatorInfo* info = FindOperator(node.domain, node.proto->op_type());
  if (info != nullptr && SinceVersion(*info, node.opset) == 0) {
    return Error(2007, "",
                 node.opset == 0 ? "its operator set is not imported"
                                 : absl::StrCat("is not in operator set ", node.opset));
  }
  TWIN_RETURN_IF_ERROR(CheckCall(node, *row, inputs));
  OpCall call(node, std::move(inputs), frame, *this);
  row->kernel(call);
  if (!call.ok()) return call.status();
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] < 0) continue;
    if (call.results()[i].is_nothing())
      return Error(2007, "", absl::StrCat("its output ", i, " has no meaning here"));
    frame.slots[node.outputs[i]] = std::move(call.results()[i]);
  }
  return absl::OkStatus();
}

}  // namespace twinforge
