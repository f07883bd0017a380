#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/json_reader.h"
#include "onnx/infer/inference.h"
#include "onnx/infer/rule.h"
#include "onnx/onnx-ml.pb.h"
#include "onnx/tensor_data.h"

namespace twinforge {

using ::onnx::AttributeProto;

InferCall::InferCall(const OnnxNode& node, InferFrame& frame, OnnxInference& inference)
    : node_(node), frame_(frame), inference_(inference), outs_(node.outputs.size()) {
  static const OnnxFact* const nothing = new OnnxFact;
  for (const int32_t slot : node.inputs) inputs_.push_back(slot < 0 ? nothing : &frame.facts[slot]);
}

absl::string_view InferCall::op() const { return node_.proto->op_type(); }

const OnnxFact& InferCall::In(int i) const {
  static const OnnxFact* const nothing = new OnnxFact;
  return i < inputs() ? *inputs_[i] : *nothing;
}

const ::onnx::TensorProto* InferCall::ConstantOf(int i) const {
  return Has(i) ? frame_.constants[node_.inputs[i]] : nullptr;
}

std::optional<std::vector<double>> InferCall::Doubles(int i) const {
  if (!Has(i)) return std::nullopt;
  if (const std::optional<std::vector<int64_t>> integers = In(i).Integers())
    return std::vector<double>(integers->begin(), integers->end());
  const ::onnx::TensorProto* constant = ConstantOf(i);
  return constant == nullptr ? std::nullopt : inference_.SmallNumbers(*constant);
}

std::optional<KnownDims> InferCall::ElementsOf(int i) const {
  const OnnxFact& in = In(i);
  if (!HasElements(in.type)) return std::nullopt;
  if (in.elements) return in.elements;
  const std::optional<int64_t> count = FewElements(in.shape);
  if (!count) return std::nullopt;
  return KnownDims(static_cast<size_t>(*count));
}

KnownDim InferCall::Scalar(int i, KnownDim absent) const {
  if (!Has(i)) return absent;
  const OnnxFact& in = In(i);
  return in.elements && in.elements->size() == 1 ? (*in.elements)[0] : std::nullopt;
}

std::optional<int64_t> InferCall::ScalarNumber(int i, std::optional<int64_t> absent) const {
  if (!Has(i)) return absent;
  const KnownDim scalar = Scalar(i);
  return scalar ? scalar->value() : std::nullopt;
}

const AttributeProto* InferCall::Attr(absl::string_view name) const {
  return FindAttribute(node_, frame_.attributes, name);
}

const AttributeProto* InferCall::Typed(absl::string_view name, int type) {
  const AttributeProto* found = Attr(name);
  if (found == nullptr || !found->has_type() || found->type() == type) return found;
  Fail(absl::StrCat("attribute ", JsonQuoted(name, 60), " is of another type than the operator's"));
  return nullptr;
}

int64_t InferCall::Int(absl::string_view name, int64_t absent) {
  const AttributeProto* a = Typed(name, AttributeProto::INT);
  return a == nullptr ? absent : a->i();
}

absl::string_view InferCall::Str(absl::string_view name, absl::string_view absent) {
  const AttributeProto* a = Typed(name, AttributeProto::STRING);
  return a == nullptr ? absent : absl::string_view(a->s());
}

std::optional<std::vector<int64_t>> InferCall::Ints(absl::string_view name) {
  const AttributeProto* a = Typed(name, AttributeProto::INTS);
  if (a == nullptr) return std::nullopt;
  return std::vector<int64_t>(a->ints().begin(), a->ints().end());
}

std::optional<ElementType> InferCall::TypeAttr(absl::string_view name, std::optional<ElementType> absent) {
  const AttributeProto* a = Typed(name, AttributeProto::INT);
  if (a == nullptr) return ok() ? absent : std::nullopt;
  const std::optional<ElementType> type = ElementTypeFromCode(a->i());
  return type == ElementType::kUndefined ? std::nullopt : type;
}

std::optional<int64_t> InferCall::Axis(int64_t axis, int64_t rank) {
  if (axis >= -rank && axis < rank) return axis < 0 ? axis + rank : axis;
  Fail(absl::StrCat("axis ", axis, " of ", rank));
  return std::nullopt;
}

std::optional<std::vector<int64_t>> InferCall::Axes(std::vector<int64_t> axes, int64_t rank) {
  for (int64_t& axis : axes) {
    const std::optional<int64_t> normal = Axis(axis, rank);
    if (!normal) return std::nullopt;
    axis = *normal;
  }
  std::vector<int64_t> sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end()) return axes;
  Fail("names an axis twice");
  return std::nullopt;
}

bool InferCall::RankIs(int i, int64_t rank, absl::string_view what) {
  if (!In(i).shape) return false;
  if (*In(i).Rank() != rank) Fail(absl::StrCat(what, " is ", ShapeOfFact(In(i)), ", not of ", rank, " axes"));
  return ok();
}

void InferCall::Meet(KnownDim& a, const KnownDim& b, absl::string_view what) {
  if (DimsDiffer(a, b)) Fail(absl::StrCat(what, ": ", a->Text(), " and ", b->Text()));
  a = DimMeet(a, b);
}

KnownDim InferCall::Min(const KnownDim& a, const KnownDim& b) {
  const KnownDim decided = DimMin(a, b);
  if (decided || !a || !b || DimLeast(*a).value_or(-1) < 0 || DimLeast(*b).value_or(-1) < 0) return decided;
  return inference_.CutSymbol(absl::StrCat("min(", a->Text(), ", ", b->Text(), ")"), *a, *b);
}

KnownDim InferCall::Cut(const KnownDim& asked, const KnownDim& start, const KnownDim& size) {
  return inference_.CutSymbol(
      absl::StrCat("min(", asked->Text(), ", ", size->Text(), " - ", start->Text(), ")"), *asked, *size);
}

KnownDim InferCall::Broadcast(const KnownDim& a, const KnownDim& b) const {
  const KnownDim decided = DimBroadcast(a, b);
  if (decided || !a || !b) return decided;
  if (inference_.IsCutFrom(*a, *b)) return b;
  return inference_.IsCutFrom(*b, *a) ? a : std::nullopt;
}

void InferCall::Fail(std::string message) {
  if (ok_) message_ = std::move(message);
  ok_ = false;
}

const OnnxGraph* InferCall::BodyGraph(absl::string_view attribute) const {
  for (const auto& [name, graph] : node_.subgraphs) {
    if (name == attribute) return graph;
  }
  return nullptr;
}

std::optional<std::vector<OnnxFact>> InferCall::Body(absl::string_view attribute,
                                                     std::vector<OnnxFact> inputs) {
  const OnnxGraph* graph = BodyGraph(attribute);
  if (graph == nullptr) return std::nullopt;
  return inference_.RunSubgraph(*graph, std::move(inputs), frame_);
}

OnnxFact InferCall::FactOf(const ::onnx::TensorProto& tensor) const { return inference_.FactOf(tensor); }

bool HasElements(const std::optional<ElementType>& type) {
  return type && (IsIntegerElement(*type) || *type == ElementType::kBool);
}

std::optional<int64_t> FewElements(const std::optional<KnownDims>& shape) {
  if (!shape) return std::nullopt;
  int64_t count = 1;
  for (const KnownDim& extent : *shape) {
    const std::optional<int64_t> number = extent ? extent->value() : std::nullopt;
    if (!number || *number < 0 || *number > kFewElements) return std::nullopt;
    count *= *number;
    if (count > kFewElements) return std::nullopt;
  }
  return count;
}

std::optional<KnownDims> BroadcastKnown(InferCall& c, const std::optional<KnownDims>& a,
                                        const std::optional<KnownDims>& b) {
  if (!a || !b) return std::nullopt;
  const KnownDims &longer = a->size() >= b->size() ? *a : *b, &shorter = a->size() >= b->size() ? *b : *a;
  KnownDims shape = longer;
  const size_t lead = longer.size() - shorter.size();
  for (size_t d = 0; d < shorter.size(); ++d) {
    KnownDim& extent = shape[lead + d];
    if (extent && shorter[d] && *extent == *shorter[d]) continue;
    if (!Broadcasts(extent, shorter[d])) {
      c.Fail(absl::StrCat(FactText({std::nullopt, a, std::nullopt}).substr(2), " and ",
                          FactText({std::nullopt, b, std::nullopt}).substr(2), " do not broadcast"));
    }
    extent = c.Broadcast(extent, shorter[d]);
  }
  return shape;
}

std::string ShapeOfFact(const OnnxFact& fact) {
  return FactText({std::nullopt, fact.shape, std::nullopt}).substr(2);
}

}  // namespace twinforge
