#include "onnx/infer/inference.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "onnx/infer/rule.h"
#include "onnx/onnx-ml.pb.h"
#include "onnx/tensor_data.h"

namespace twinforge {
namespace {

constexpr int kDeepestCalls = 500;         // graphs in graphs and functions in functions, on our stack
constexpr size_t kMostRemembered = 8;      // runs of one graph
constexpr int64_t kInitializersFixed = 4;  // IR version since which an input's initializer is a default only

bool SameAttribute(const ::onnx::AttributeProto& a, const ::onnx::AttributeProto& b) {
  if (&a == &b) return true;
  const bool plain = !a.has_t() && !a.has_g() && !a.has_tp() && !a.has_sparse_tensor() &&
                     a.floats_size() == 0 && a.strings_size() == 0 && a.tensors_size() == 0 &&
                     a.graphs_size() == 0;
  return plain && a.ByteSizeLong() == b.ByteSizeLong() && a.SerializeAsString() == b.SerializeAsString();
}

bool SameAttributes(const OnnxAttributes& a, const OnnxAttributes& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, value] : a) {
    const auto other = b.find(name);
    if (other == b.end() || !SameAttribute(*value, *other->second)) return false;
  }
  return true;
}

int64_t NodesOf(const OnnxModel& model) {
  int64_t nodes = static_cast<int64_t>(model.graph.nodes.size());
  for (const auto& graph : model.subgraphs) nodes += static_cast<int64_t>(graph->nodes.size());
  for (const auto& function : model.functions) nodes += static_cast<int64_t>(function->body->nodes.size());
  return nodes;
}

bool RefersToAttributes(const OnnxNode& node) {
  const auto& attributes = node.proto->attribute();
  return std::any_of(attributes.begin(), attributes.end(),
                     [](const ::onnx::AttributeProto& a) { return !a.ref_attr_name().empty(); });
}

// Elements of integers, and only as many as the shape has.
void DropUnfitElements(OnnxFact& fact) {
  if (!fact.elements) return;
  const int64_t count = HasElements(fact.type) ? FewElements(fact.shape).value_or(-1) : -1;
  const bool any = std::any_of(fact.elements->begin(), fact.elements->end(),
                               [](const KnownDim& element) { return element.has_value(); });
  if (count != static_cast<int64_t>(fact.elements->size()) || (!any && count > 0)) fact.elements.reset();
}

}  // namespace

OnnxInference::OnnxInference(const OnnxModel& model)
    : model_(model), most_visits_(kVisitsPerNode * NodesOf(model) + kVisitsAnyway) {
  for (const auto& function : model.functions) functions_[function->body.get()] = function->proto;
}

absl::StatusOr<OnnxFacts> OnnxInference::Run() {
  const OnnxGraph& graph = model_.graph;
  InferFrame frame{&graph, std::vector<OnnxFact>(graph.names.size()), {}, {}, nullptr, false};
  frame.constants.resize(graph.names.size());
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    frame.facts[graph.inputs[i]] = declared_.FactOfInput(graph.proto->input(static_cast<int>(i)).type());
  }
  frame.declared = DeclaredIn(graph);
  const bool defaults = model_.proto->ir_version() >= kInitializersFixed;
  SetInitializers(frame, defaults ? absl::MakeConstSpan(graph.inputs) : absl::Span<const int32_t>());
  Walk(frame);
  TWIN_RETURN_IF_ERROR(status_);
  out_.facts_[&graph] = std::move(frame.facts);
  out_.renamed_ = declared_.renamed();
  return std::move(out_);
}

// Of what is `given` anew in each run an initializer is only a default.
void OnnxInference::SetInitializers(InferFrame& frame, absl::Span<const int32_t> given) {
  const absl::flat_hash_set<int32_t> inputs(given.begin(), given.end());
  for (const OnnxInitializer& initializer : frame.graph->initializers) {
    OnnxFact& fact = frame.facts[initializer.slot];
    if (inputs.count(initializer.slot) != 0) continue;
    if (initializer.dense != nullptr) {
      fact = FactOf(*initializer.dense);
      frame.constants[initializer.slot] = initializer.dense;
    } else {
      fact = OnnxFact();
      fact.type = ElementTypeFromCode(initializer.sparse->values().data_type());
      fact.shape.emplace();
      for (const int64_t extent : initializer.sparse->dims()) fact.shape->push_back(Dim(extent));
    }
  }
}

OnnxFact OnnxInference::FactOf(const ::onnx::TensorProto& tensor) const {
  OnnxFact fact;
  fact.type = ElementTypeFromCode(tensor.data_type());
  fact.shape.emplace();
  fact.shape->reserve(static_cast<size_t>(tensor.dims_size()));
  for (const int64_t extent : tensor.dims()) fact.shape->push_back(Dim(extent));
  if (!HasElements(fact.type) || !FewElements(fact.shape)) return fact;
  const absl::StatusOr<OnnxTensor> read = TensorFromProto(tensor, model_.proto, *model_.files, "");
  if (!read.ok()) return fact;  // the reader's affair; nothing is known of them
  const bool beyond = *fact.type == ElementType::kUint64;
  fact.elements.emplace();
  for (const int64_t element : Elements<int64_t>(*read))
    fact.elements->push_back(beyond && element < 0 ? KnownDim() : KnownDim(Dim(element)));
  return fact;
}

std::optional<std::vector<double>> OnnxInference::SmallNumbers(const ::onnx::TensorProto& tensor) const {
  int64_t count = 1;
  for (const int64_t extent : tensor.dims()) {
    if (extent < 0 || extent > kFewElements) return std::nullopt;
    count *= extent;
    if (count > kFewElements) return std::nullopt;
  }
  if (tensor.data_location() == ::onnx::TensorProto::EXTERNAL) return std::nullopt;  // weights stay unread
  const absl::StatusOr<OnnxTensor> read = TensorFromProto(tensor, model_.proto, *model_.files, "");
  if (!read.ok() || read->carrier() == ElementCarrier::kComplex || read->is_string()) return std::nullopt;
  return Elements<double>(*read);
}

Dim OnnxInference::CutSymbol(const std::string& text, const Dim& a, const Dim& b) {
  const std::string symbol = declared_.SymbolFor(text);
  cuts_.try_emplace(symbol, a, b);
  return Dim::Symbol(symbol);
}

bool OnnxInference::IsCutFrom(const Dim& cut, const Dim& whole) const {
  const Dim::Terms& terms = cut.terms();
  if (terms.size() != 1 || terms.begin()->second != 1 || terms.begin()->first.size() != 1) return false;
  const auto found = cuts_.find(terms.begin()->first[0]);
  if (found == cuts_.end()) return false;
  const auto& [a, b] = found->second;
  return (a == whole && b.value().value_or(0) >= 2) || (b == whole && a.value().value_or(0) >= 2);
}

absl::Span<const ::onnx::TypeProto* const> OnnxInference::DeclaredIn(const OnnxGraph& graph) {
  const auto [at, fresh] = declared_types_.try_emplace(&graph);
  std::vector<const ::onnx::TypeProto*>& types = at->second;
  if (!fresh) return types;
  types.resize(graph.names.size());
  const auto function = functions_.find(&graph);
  const auto* infos = graph.proto != nullptr         ? &graph.proto->value_info()
                      : function != functions_.end() ? &function->second->value_info()
                                                     : nullptr;
  if (infos != nullptr && !infos->empty()) {
    absl::flat_hash_map<absl::string_view, const ::onnx::TypeProto*> by_name;
    by_name.reserve(static_cast<size_t>(infos->size()));
    for (const ::onnx::ValueInfoProto& info : *infos) by_name[info.name()] = &info.type();
    for (size_t slot = 0; slot < types.size(); ++slot) {
      const auto found = by_name.find(graph.names[slot]);
      if (found != by_name.end()) types[slot] = found->second;
    }
  }
  if (graph.proto == nullptr) return types;
  for (size_t i = 0; i < graph.outputs.size(); ++i)
    types[graph.outputs[i]] = &graph.proto->output(static_cast<int>(i)).type();
  for (size_t i = 0; i < graph.inputs.size(); ++i)
    types[graph.inputs[i]] = &graph.proto->input(static_cast<int>(i)).type();
  return types;
}

void OnnxInference::Walk(InferFrame& frame) {
  for (const OnnxNode& node : frame.graph->nodes) {
    if (!status_.ok()) return;
    InferNode(node, frame);
  }
}

void OnnxInference::InferNode(const OnnxNode& node, InferFrame& frame) {
  ++out_.node_visits_;
  if (node.function != nullptr) {
    CallFunction(node, frame);
  } else {
    CallRule(node, frame);
  }
}

void OnnxInference::CallRule(const OnnxNode& node, InferFrame& frame) {
  const InferRow* row = FindInferRule(node.domain, node.proto->op_type());
  const bool speaks = row != nullptr && (row->first_version == 0 || node.opset >= row->first_version) &&
                      !(frame.anything && RefersToAttributes(node));
  if (!speaks) {
    for (const int32_t slot : node.outputs) SetFact(frame, slot, OnnxFact());
    return;
  }
  InferCall call(node, frame, *this);
  for (int i = 0; i < row->min_inputs; ++i) {
    if (!call.Has(i)) call.Fail(absl::StrCat("lacks input ", i));
  }
  if (call.ok()) row->rule(call);
  for (int i = 0; i < call.outputs() && call.ok(); ++i) {
    const std::optional<KnownDims>& shape = call.Out(i).shape;
    for (size_t d = 0; shape && d < shape->size(); ++d) {
      const KnownDim& extent = (*shape)[d];
      if (extent && DimMost(*extent).value_or(0) < 0)
        call.Fail(absl::StrCat("makes an extent of ", extent->Text()));
    }
  }
  if (!call.ok()) {
    Report(node.proto,
           absl::StrCat(NodeText(*node.proto), " (",
                        JsonQuoted(OperatorName(node.domain, node.proto->op_type()), 100), ")"),
           call.message());
  }
  for (int i = 0; i < call.outputs(); ++i)
    SetFact(frame, node.outputs[i], call.ok() ? std::move(call.Out(i)) : OnnxFact());
  if (call.ok() && !node.outputs.empty() && node.outputs[0] >= 0)
    frame.constants[node.outputs[0]] = call.constant();
}

void OnnxInference::SetFact(InferFrame& frame, int32_t slot, OnnxFact fact) {
  if (slot < 0) return;
  if (const ::onnx::TypeProto* type = frame.declared[slot]) {
    const OnnxFact declared = declared_.FactOf(*type, frame.graph != &model_.graph);
    const std::string contradiction = Contradiction(fact, declared);
    if (!contradiction.empty()) {
      Report(type, absl::StrCat("value ", JsonQuoted(frame.graph->names[slot], 200)), contradiction);
    } else {
      FillFrom(declared, fact);
    }
  }
  DropUnfitElements(fact);
  frame.facts[slot] = std::move(fact);
}

void OnnxInference::Report(const void* about, std::string node, std::string message) {
  if (reported_.insert(about).second) out_.mismatches_.push_back({std::move(node), std::move(message)});
}

void OnnxInference::CallFunction(const OnnxNode& node, InferFrame& frame) {
  const OnnxGraph& body = *node.function->body;
  Given given;
  given.anything = frame.anything && RefersToAttributes(node);
  for (size_t i = 0; i < body.inputs.size(); ++i) {
    const int32_t slot = i < node.inputs.size() ? node.inputs[i] : -1;
    given.facts.push_back(slot < 0 ? OnnxFact() : frame.facts[slot]);
    given.constants.push_back(slot < 0 ? nullptr : frame.constants[slot]);
  }
  OnnxAttributes attributes;
  for (const ::onnx::AttributeProto& value : node.function->proto->attribute_proto())
    attributes[value.name()] = &value;
  for (const ::onnx::AttributeProto& value : node.proto->attribute()) {
    const ::onnx::AttributeProto* found = FindAttribute(node, frame.attributes, value.name());
    if (found != nullptr) attributes[value.name()] = found;
  }
  given.attributes = &attributes;
  std::vector<OnnxFact> outputs = RunGiven(body, std::move(given));
  for (size_t i = 0; i < node.outputs.size(); ++i)
    SetFact(frame, node.outputs[i], i < outputs.size() ? std::move(outputs[i]) : OnnxFact());
}

std::vector<OnnxFact> OnnxInference::RunSubgraph(const OnnxGraph& graph, std::vector<OnnxFact> inputs,
                                                 const InferFrame& around) {
  Given given;
  given.anything = around.anything;
  given.attributes = around.attributes;
  given.facts = std::move(inputs);
  given.facts.resize(graph.inputs.size());
  given.constants.resize(graph.inputs.size());
  for (const auto& [outer, inner] : graph.captures) {
    given.facts.push_back(around.facts[outer]);
    given.constants.push_back(around.constants[outer]);
  }
  return RunGiven(graph, std::move(given));
}

const OnnxInference::Remembered* OnnxInference::Recall(const OnnxGraph& graph, const Given& given) const {
  const auto found = memory_.find(&graph);
  if (found == memory_.end()) return nullptr;
  for (const Remembered& run : found->second) {
    if (run.given.anything != given.anything || run.given.facts != given.facts ||
        run.given.constants != given.constants)
      continue;
    static const OnnxAttributes* const none = new OnnxAttributes;
    if (SameAttributes(run.attributes, given.attributes == nullptr ? *none : *given.attributes)) return &run;
  }
  return nullptr;
}

std::vector<OnnxFact> OnnxInference::RunGiven(const OnnxGraph& graph, Given given) {
  if (!status_.ok()) return std::vector<OnnxFact>(graph.outputs.size());
  if (out_.node_visits_ > most_visits_) given.anything = true;
  if (given.anything) {
    // Facts of one run of many are none of all: nothing is given.
    std::fill(given.facts.begin(), given.facts.end(), OnnxFact());
    std::fill(given.constants.begin(), given.constants.end(), nullptr);
    given.attributes = nullptr;
  }
  if (const Remembered* run = Recall(graph, given)) return run->outputs;
  std::vector<OnnxFact> outputs = WalkGiven(graph, given);
  std::vector<Remembered>& runs = memory_[&graph];
  if (runs.size() >= kMostRemembered) runs.erase(runs.begin());
  runs.emplace_back();
  if (given.attributes != nullptr) runs.back().attributes = *given.attributes;
  given.attributes = nullptr;  // of the caller
  runs.back().given = std::move(given);
  runs.back().outputs = outputs;
  return outputs;
}

std::vector<OnnxFact> OnnxInference::WalkGiven(const OnnxGraph& graph, const Given& given) {
  std::vector<OnnxFact> outputs;
  if (++depth_ > kDeepestCalls) {
    status_ = Error(2005, model_.path, "calls graphs and functions too deeply");
    return outputs;
  }
  InferFrame frame{
      &graph,        std::vector<OnnxFact>(graph.names.size()), {}, DeclaredIn(graph), given.attributes,
      given.anything};
  frame.constants.resize(graph.names.size());
  SetInitializers(frame, {});
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    SetFact(frame, graph.inputs[i], given.facts[i]);
    frame.constants[graph.inputs[i]] = given.constants[i];
  }
  for (size_t i = 0; i < graph.captures.size(); ++i) {
    frame.facts[graph.captures[i].second] = given.facts[graph.inputs.size() + i];
    frame.constants[graph.captures[i].second] = given.constants[graph.inputs.size() + i];
  }
  Walk(frame);
  --depth_;
  for (const int32_t slot : graph.outputs) outputs.push_back(frame.facts[slot]);
  Keep(frame);
  return outputs;
}

void OnnxInference::Keep(InferFrame& frame) {
  const auto [at, fresh] = out_.facts_.try_emplace(frame.graph);
  if (fresh) {
    at->second = std::move(frame.facts);
    return;
  }
  for (size_t slot = 0; slot < frame.facts.size(); ++slot)
    at->second[slot] = JoinFacts(at->second[slot], frame.facts[slot]);
}

absl::StatusOr<OnnxFacts> InferOnnx(const OnnxModel& model) { return OnnxInference(model).Run(); }

}  // namespace twinforge
