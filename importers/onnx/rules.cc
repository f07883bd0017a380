#include "importers/onnx/rules.h"

#include <cmath>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "onnx/onnx-ml.pb.h"

namespace twinforge {
namespace {

constexpr int64_t kMostFlow = int64_t{1} << 25;  // elements of one flow

}  // namespace

absl::string_view RaiseCall::op() const { return node.proto->op_type(); }

std::optional<double> RaiseCall::NumberAt(int i) {
  if (!Has(i)) return std::nullopt;
  const TracedValue& value = In(i);
  const bool one =
      value.known ? value.known->count() == 1 : value.weight != nullptr && value.weight->element_count() == 1;
  if (!one) return std::nullopt;
  const std::optional<OnnxTensor> tensor = KnownAt(i);
  const bool number = tensor && tensor->carrier() != ElementCarrier::kComplex && !tensor->is_string() &&
                      tensor->carrier() != ElementCarrier::kNone;
  return number ? std::optional<double>(Elements<double>(*tensor)[0]) : std::nullopt;
}

std::optional<std::vector<int64_t>> RaiseCall::IntegersAt(int i) {
  const std::optional<OnnxTensor> tensor = KnownAt(i);
  if (!tensor || !IsIntegerElement(tensor->type())) return std::nullopt;
  return Elements<int64_t>(*tensor);
}

int64_t RaiseCall::Int(absl::string_view name, int64_t absent) const {
  const ::onnx::AttributeProto* found = FindAttribute(node, nullptr, name);
  return found == nullptr ? absent : found->i();
}

double RaiseCall::Float(absl::string_view name, double absent) const {
  const ::onnx::AttributeProto* found = FindAttribute(node, nullptr, name);
  return found == nullptr ? absent : found->f();
}

std::optional<std::vector<int64_t>> RaiseCall::Ints(absl::string_view name) const {
  const ::onnx::AttributeProto* found = FindAttribute(node, nullptr, name);
  if (found == nullptr) return std::nullopt;
  return std::vector<int64_t>(found->ints().begin(), found->ints().end());
}

std::string RaiseCall::Str(absl::string_view name) const {
  const ::onnx::AttributeProto* found = FindAttribute(node, nullptr, name);
  return found == nullptr ? "" : found->s();
}

bool RaiseCall::Out(int i, Flow flow) {
  if (i < static_cast<int>(trace.results().size())) trace.results()[i].flow = std::move(flow);
  return true;
}

bool RaiseCall::OutWeight(int i, WeightPtr weight) {
  if (i < static_cast<int>(trace.results().size())) trace.results()[i].weight = std::move(weight);
  return true;
}

bool RaiseCall::OutKnown(int i, OnnxTensor tensor) {
  if (i < static_cast<int>(trace.results().size())) trace.results()[i].known = std::move(tensor);
  return true;
}

Flow RaiseCall::New(Term term) {
  term.node = index;
  Flow flow{.shape = term.shape};
  flow.term = trace.AddTerm(std::move(term));
  return flow;
}

bool RaiseCall::Miss(std::string message) {
  trace.Miss(index, std::move(message));
  return false;
}

bool RaiseCall::Move(int data) {
  const Flow flow = *FlowAt(data);
  if (flow.count() > kMostFlow) return Miss("more elements than a look takes");
  std::vector<Flow> results(node.outputs.size(), flow);
  const auto compute = [&](const OnnxTensor& tensor) { return trace.Compute(node, {{data, tensor}}); };
  for (size_t p = 0; p < flow.parts.size(); ++p) {
    const FlowPart& part = flow.parts[p];
    std::vector<int64_t> index(static_cast<size_t>(flow.count()));
    for (int64_t i = 0; i < flow.count(); ++i) index[i] = IndexAt(part, i);
    const auto moved = compute(TensorOf<int64_t>(ElementType::kInt64, flow.shape, index));
    if (!moved) return Miss("where elements move is not known beforehand");
    std::optional<std::vector<OnnxTensor>> coefs;
    if (part.coef != nullptr) {
      coefs = compute(TensorOf<double>(ElementType::kDouble, flow.shape, *part.coef));
      if (!coefs) return Miss("where elements move is not known beforehand");
    }
    for (size_t k = 0; k < results.size(); ++k) {
      if (node.outputs[k] < 0) continue;
      results[k].shape = (*moved)[k].shape();
      FlowPart& out = results[k].parts[p];
      std::vector<int64_t> places = Elements<int64_t>((*moved)[k]);
      bool same = static_cast<int64_t>(places.size()) == trace.term(flow).count();
      for (size_t i = 0; same && i < places.size(); ++i) same = places[i] == static_cast<int64_t>(i);
      out.index = same ? nullptr : std::make_shared<const std::vector<int64_t>>(std::move(places));
      out.coef = coefs ? std::make_shared<const std::vector<double>>(Elements<double>((*coefs)[k])) : nullptr;
    }
  }
  for (size_t k = 0; k < results.size(); ++k) Out(static_cast<int>(k), std::move(results[k]));
  return true;
}

RaiseRule FindRaiseRule(absl::string_view domain, absl::string_view name) {
  static const auto* const table = [] {
    auto* rows = new absl::flat_hash_map<std::string, RaiseRule>();
    for (const absl::Span<const RaiseRow> some :
         {MoveRules(), ArithmeticRules(), BlockRules(), FusedRules(), ExpertRules()}) {
      for (const RaiseRow& row : some) rows->emplace(absl::StrCat(row.domain, "::", row.name), row.rule);
    }
    return rows;
  }();
  const auto found = table->find(absl::StrCat(domain, "::", name));
  return found == table->end() ? nullptr : found->second;
}

std::optional<Shape> MetShape(const Shape& a, const Shape& b) {
  Shape shape(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) return std::nullopt;
    shape[shape.size() - 1 - i] = x == 1 ? y : x;
  }
  if (CheckedElementCount(shape).value_or(kMostFlow + 1) > kMostFlow) return std::nullopt;
  return shape;
}

Flow BroadcastFlow(const Flow& flow, const Shape& shape) {
  if (flow.shape == shape) return flow;
  Flow wide{.term = flow.term, .shape = shape, .factor = flow.factor};
  if (wide.count() == flow.count()) {
    wide.parts = flow.parts;
    return wide;
  }
  const size_t lead = shape.size() - flow.shape.size();
  const std::vector<int64_t> strides = Strides(flow.shape);
  std::vector<int64_t> from(static_cast<size_t>(wide.count()));
  for (int64_t i = 0; i < wide.count(); ++i) {
    int64_t rest = i, place = 0;
    for (size_t axis = shape.size(); axis-- > 0;) {
      const int64_t at = rest % shape[axis];
      rest /= shape[axis];
      if (axis >= lead && flow.shape[axis - lead] != 1) place += at * strides[axis - lead];
    }
    from[i] = place;
  }
  wide.parts.clear();
  for (const FlowPart& part : flow.parts) {
    std::vector<int64_t> index(from.size());
    std::vector<double> coef(part.coef ? from.size() : 0);
    for (size_t i = 0; i < from.size(); ++i) index[i] = IndexAt(part, from[i]);
    for (size_t i = 0; i < coef.size(); ++i) coef[i] = CoefAt(part, from[i]);
    wide.parts.push_back(
        {std::make_shared<const std::vector<int64_t>>(std::move(index)),
         part.coef ? std::make_shared<const std::vector<double>>(std::move(coef)) : nullptr});
  }
  return wide;
}

}  // namespace twinforge
