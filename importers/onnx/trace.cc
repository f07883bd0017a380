#include "importers/onnx/trace.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "importers/onnx/rules.h"
#include "onnx/onnx-ml.pb.h"
#include "onnx/tensor_data.h"
#include "weights/build.h"

namespace twinforge {
namespace {

constexpr int64_t kMostLoaded = int64_t{1} << 22;   // elements of a weight that is computed with as a number
constexpr int64_t kMostInteger = int64_t{1} << 22;  // of an integer tensor that is kept as known
constexpr int64_t kLargestNumber = int64_t{1} << 31;  // beyond: an end that means "to the last"

bool IsNumbers(ElementType type) {
  return IsFloatingElement(type) || IsIntegerElement(type) || type == ElementType::kBool;
}

void Merge(const std::vector<int64_t>& more, std::vector<int64_t>& numbers) {
  numbers.insert(numbers.end(), more.begin(), more.end());
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
}

}  // namespace

bool SameFlow(const Flow& a, const Flow& b) {
  if (a.term != b.term || a.shape != b.shape || a.factor != b.factor || a.parts.size() != b.parts.size())
    return false;
  for (size_t p = 0; p < a.parts.size(); ++p) {
    const FlowPart &x = a.parts[p], &y = b.parts[p];
    if ((x.index == nullptr) != (y.index == nullptr) || (x.coef == nullptr) != (y.coef == nullptr))
      return false;
    if (x.index != y.index && *x.index != *y.index) return false;
    if (x.coef != y.coef && *x.coef != *y.coef) return false;
  }
  return true;
}

OnnxTrace::OnnxTrace(const OnnxModel& model, const OnnxStored& stored, OnnxProbe probe)
    : model_(model),
      stored_(stored),
      probe_(std::move(probe)),
      runner_(model, {.elements = int64_t{1} << 24, .nodes = 2000000, .work = 1e9}),
      frame_{&model.graph, std::vector<OnnxValue>(model.graph.names.size()), nullptr},
      values_(model.graph.names.size()) {}

std::string OnnxTrace::NodeName(int node) const {
  const ::onnx::NodeProto& proto = *model_.graph.nodes[node].proto;
  return absl::StrCat(NodeText(proto), " (",
                      JsonQuoted(OperatorName(model_.graph.nodes[node].domain, proto.op_type()), 100), ")");
}

void OnnxTrace::Miss(int node, std::string message) { misses_.push_back({node, std::move(message)}); }

int OnnxTrace::AddTerm(Term term) {
  terms_.push_back(std::move(term));
  return static_cast<int>(terms_.size()) - 1;
}

// An integer of the file, or what the probe puts in its place; large ones are noted.
OnnxTensor OnnxTrace::Replaced(OnnxTensor tensor, std::vector<int64_t>& numbers) const {
  if (tensor.count() != 1 || !IsIntegerElement(tensor.type())) return tensor;
  const int64_t number = Elements<int64_t>(tensor)[0];
  if (number < probe_.seq || number >= kLargestNumber) return tensor;
  numbers.push_back(number);
  const auto other = probe_.numbers.find(number);
  if (other == probe_.numbers.end()) return tensor;
  return TensorOf<int64_t>(tensor.type(), tensor.shape(), std::vector<int64_t>{other->second});
}

absl::Status OnnxTrace::SetInitializers() {
  for (const OnnxInitializer& initializer : model_.graph.initializers) {
    TracedValue& value = values_[initializer.slot];
    if (initializer.dense == nullptr) continue;
    const ::onnx::TensorProto& proto = *initializer.dense;
    const Shape shape(proto.dims().begin(), proto.dims().end());
    const int64_t count = CheckedElementCount(shape).value_or(0);
    value.weight = count > 1 ? stored_.Find(initializer.slot) : nullptr;
    if (value.weight != nullptr || count > kMostInteger) continue;
    const std::optional<ElementType> type = ElementTypeFromCode(proto.data_type());
    if (!type || !IsNumbers(*type)) continue;
    TWIN_ASSIGN_OR_RETURN(OnnxTensor tensor,
                          TensorFromProto(proto, model_.proto, *model_.files,
                                          JsonQuoted(model_.graph.names[initializer.slot], 200)));
    value.known = Replaced(std::move(tensor), value.numbers);
    value.fixed = true;
  }
  return absl::OkStatus();
}

// Sizes by the words of the interface: [batch, seq] of tokens; what is not stated is as long as they are.
void OnnxTrace::SetInput(int32_t slot, const ::onnx::ValueInfoProto& info) {
  TracedValue& value = values_[slot];
  const auto& tensor = info.type().tensor_type();
  const ElementType type = ElementTypeFromCode(tensor.elem_type()).value_or(ElementType::kUndefined);
  const std::string name = info.name();
  const int64_t batch = probe_.batch, seq = probe_.seq;
  if (IsFloatingElement(type) && tensor.shape().dim_size() == 4) {
    caches_.push_back(slot);
    Shape shape = {batch, 0, 0, 0};
    for (int i = 1; i < 4; ++i) {
      const auto& dim = tensor.shape().dim(i);
      shape[i] = dim.has_dim_value() ? dim.dim_value() : 0;
    }
    // Of fixed length it is no cache that may be empty: it stays unknown.
    if (CheckedElementCount(shape) == 0) value.known = TensorOf<double>(type, shape, std::vector<double>());
    return;
  }
  if (!IsIntegerElement(type) && !IsFloatingElement(type) && type != ElementType::kBool) return;
  if (tensor.has_shape() && tensor.shape().dim_size() != 2) return;
  if (absl::StrContains(name, "mask")) {
    std::vector<int64_t> ones(static_cast<size_t>(batch * seq), 1);
    for (int64_t i = 0; i < probe_.hidden; ++i) ones[(batch - 1) * seq + i] = 0;
    value.known = TensorOf<int64_t>(type, {batch, seq}, ones);
  } else if (absl::StrContains(name, "position")) {
    std::vector<int64_t> places;
    for (int64_t i = 0; i < batch * seq; ++i) places.push_back(i % seq);
    value.known = TensorOf<int64_t>(type, {batch, seq}, places);
  } else if (IsIntegerElement(type)) {
    const bool types = absl::StrContains(name, "type") || absl::StrContains(name, "segment");
    Term tokens{.kind = TermKind::kTokens, .shape = {batch, seq}, .word = types ? "token_types" : "tokens"};
    value.flow = Flow{.term = AddTerm(std::move(tokens)), .shape = {batch, seq}};
  }
}

absl::Status OnnxTrace::SetInputs() {
  for (int i = 0; i < model_.graph.proto->input_size(); ++i) {
    const int32_t slot = model_.graph.inputs[i];
    if (!values_[slot].nothing()) continue;
    SetInput(slot, model_.graph.proto->input(i));
  }
  return absl::OkStatus();
}

absl::Status OnnxTrace::Run() {
  TWIN_RETURN_IF_ERROR(SetInitializers());
  TWIN_RETURN_IF_ERROR(SetInputs());
  for (size_t i = 0; i < model_.graph.nodes.size(); ++i) Step(static_cast<int>(i));
  return absl::OkStatus();
}

bool OnnxTrace::Knowable(int32_t slot) const {
  const TracedValue& value = values_[slot];
  if (value.known) return true;
  if (value.weight != nullptr) return value.weight->element_count() <= kMostLoaded;
  if (!value.flow) return false;
  const TermKind kind = terms_[value.flow->term].kind;
  return (kind == TermKind::kRows || kind == TermKind::kParam) && value.flow->parts.size() == 1;
}

std::optional<OnnxTensor> OnnxTrace::Known(int32_t slot) {
  const TracedValue& value = values_[slot];
  if (value.known) return value.known;
  if (!Knowable(slot)) return std::nullopt;
  const auto loaded = loaded_.find(slot);
  if (loaded != loaded_.end()) return loaded->second;
  std::optional<OnnxTensor> tensor;
  if (value.weight != nullptr) {
    absl::StatusOr<OnnxTensor> read = ElementsOf(value.weight, stored_);
    if (read.ok()) tensor = *std::move(read);
  } else {
    const Flow& flow = *value.flow;
    const Term& term = terms_[flow.term];
    std::vector<double> all;
    ElementType type = ElementType::kFloat;
    const auto add = [&](const WeightPtr& program) {
      const absl::StatusOr<OnnxTensor> read = ElementsOf(program, stored_);
      if (!read.ok()) return;
      type = read->type();
      const std::vector<double> elements = Elements<double>(*read);
      all.insert(all.end(), elements.begin(), elements.end());
    };
    if (term.kind == TermKind::kParam) {
      add(term.kernel);
    } else {
      for (const int64_t row : Elements<int64_t>(term.known)) add(Slice(term.kernel, 0, row, 1));
    }
    if (static_cast<int64_t>(all.size()) != term.count()) return std::nullopt;
    std::vector<double> elements(static_cast<size_t>(flow.count()));
    for (int64_t i = 0; i < flow.count(); ++i)
      elements[i] = flow.factor * CoefAt(flow.parts[0], i) * all[IndexAt(flow.parts[0], i)];
    tensor = TensorOf<double>(type, flow.shape, elements);
  }
  if (tensor) loaded_[slot] = *tensor;
  return tensor;
}

std::vector<int32_t> OnnxTrace::Needs(const OnnxNode& node) const {
  std::vector<int32_t> needs;
  for (const int32_t slot : node.inputs) {
    if (slot >= 0) needs.push_back(slot);
  }
  for (const auto& [name, graph] : node.subgraphs) {
    for (const auto& [outer, inner] : graph->captures) needs.push_back(outer);
  }
  return needs;
}

std::optional<std::vector<OnnxTensor>> OnnxTrace::Compute(const OnnxNode& node,
                                                          const std::map<int, OnnxTensor>& given) {
  const std::vector<int32_t> needs = Needs(node);
  for (const int32_t slot : needs) {
    bool replaced = false;
    for (const auto& [place, tensor] : given) replaced = replaced || node.inputs[place] == slot;
    if (replaced) continue;
    std::optional<OnnxTensor> tensor = Known(slot);
    if (!tensor) return std::nullopt;
    frame_.slots[slot] = *std::move(tensor);
  }
  for (const auto& [place, tensor] : given) frame_.slots[node.inputs[place]] = tensor;
  const bool ran = runner_.RunNode(node, frame_).ok();
  std::vector<OnnxTensor> results;
  bool whole = ran;
  for (const int32_t slot : node.outputs) {
    if (slot < 0) {
      results.emplace_back();
      continue;
    }
    whole = whole && frame_.slots[slot].is_tensor();
    if (whole) results.push_back(frame_.slots[slot].tensor());
    frame_.slots[slot] = OnnxValue();
  }
  for (const int32_t slot : needs) frame_.slots[slot] = OnnxValue();
  if (!whole) return std::nullopt;
  return results;
}

bool OnnxTrace::StepKnown(const OnnxNode& node, bool fixed, std::vector<int64_t> numbers) {
  std::optional<std::vector<OnnxTensor>> results = Compute(node, {});
  if (!results) return false;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] < 0) continue;
    TracedValue& value = results_[i];
    value.numbers = numbers;
    value.known = node.inputs.empty() ? Replaced((*results)[i], value.numbers) : std::move((*results)[i]);
    value.fixed = fixed;
  }
  return true;
}

void OnnxTrace::Step(int index) {
  const OnnxNode& node = model_.graph.nodes[index];
  results_.assign(node.outputs.size(), TracedValue());
  bool known = true, knowable = true, fixed = true;
  int cause = -1;
  std::vector<int64_t> numbers;
  for (const int32_t slot : Needs(node)) {
    const TracedValue& value = values_[slot];
    known = known && value.known.has_value();
    knowable = knowable && Knowable(slot);
    fixed = fixed && (value.fixed || value.weight != nullptr);
    if (cause < 0 && value.nothing()) cause = value.cause;
    Merge(value.numbers, numbers);
  }
  const bool stored = node.inputs.empty() && node.outputs.size() == 1 && node.outputs[0] >= 0 &&
                      stored_.Find(node.outputs[0]) != nullptr &&
                      stored_.Find(node.outputs[0])->element_count() > 1;
  bool done = false;
  if (stored) {
    results_[0].weight = stored_.Find(node.outputs[0]);
    done = true;
  }
  if (!done && known) done = StepKnown(node, fixed, numbers);
  const size_t before = misses_.size();
  const RaiseRule rule = FindRaiseRule(node.domain, node.proto->op_type());
  if (!done && rule != nullptr && cause < 0) {
    RaiseCall call(*this, node, index);
    done = rule(call);
    if (!done) results_.assign(node.outputs.size(), TracedValue());
  }
  if (!done && knowable) {
    done = StepKnown(node, fixed, numbers);
    if (done) misses_.resize(before);
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] < 0) continue;
    if (!done) results_[i] = TracedValue{.cause = cause >= 0 ? cause : index};
    values_[node.outputs[i]] = std::move(results_[i]);
  }
}

std::optional<std::vector<int64_t>> OnnxTrace::Features(const Flow& flow) const {
  if (flow.parts.size() != 1 || flow.parts[0].coef != nullptr || flow.shape.empty()) return std::nullopt;
  const int64_t width = flow.shape.back(), all = Width(flow.term);
  if (width == 0 || flow.count() != rows() * width || terms_[flow.term].count() != rows() * all)
    return std::nullopt;
  std::vector<int64_t> features(static_cast<size_t>(width));
  if (flow.parts[0].index == nullptr) {
    if (width != all) return std::nullopt;
    std::iota(features.begin(), features.end(), 0);
    return features;
  }
  const std::vector<int64_t>& index = *flow.parts[0].index;
  for (int64_t row = 0; row < rows(); ++row) {
    for (int64_t f = 0; f < width; ++f) {
      const int64_t feature = index[row * width + f] - row * all;
      if (feature < 0 || feature >= all || (row > 0 && feature != features[f])) return std::nullopt;
      features[f] = feature;
    }
  }
  return features;
}

}  // namespace twinforge
