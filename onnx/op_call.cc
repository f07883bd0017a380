#include "onnx/op_call.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "onnx/onnx-ml.pb.h"
#include "onnx/run.h"
#include "onnx/tensor_data.h"

namespace twinforge {

using ::onnx::AttributeProto;

OpCall::OpCall(const OnnxNode& node, std::vector<OnnxValue> inputs, OnnxFrame& frame, OnnxRunner& runner)
    : node_(node),
      inputs_(std::move(inputs)),
      results_(node.outputs.size()),
      frame_(frame),
      runner_(runner) {}

absl::string_view OpCall::op() const { return node_.proto->op_type(); }

void OpCall::Out(int i, OnnxValue value) {
  if (i < static_cast<int>(results_.size())) results_[i] = std::move(value);
}

std::vector<double> OpCall::Doubles(int i) {
  const ElementCarrier carrier = In(i).carrier();
  if (carrier == ElementCarrier::kDouble || carrier == ElementCarrier::kInt64 ||
      carrier == ElementCarrier::kUint64) {
    return Elements<double>(In(i));
  }
  Fail(absl::StrCat("input ", i, " is ", ElementTypeName(In(i).type()), ", not numbers"));
  return {};
}

std::vector<int64_t> OpCall::Ints(int i) {
  const ElementCarrier carrier = In(i).carrier();
  if (carrier == ElementCarrier::kInt64 || carrier == ElementCarrier::kUint64)
    return Elements<int64_t>(In(i));
  Fail(absl::StrCat("input ", i, " is ", ElementTypeName(In(i).type()), ", not integers"));
  return {};
}

int64_t OpCall::IntScalar(int i, int64_t absent) {
  if (!Has(i)) return absent;
  if (In(i).count() != 1) Fail(absl::StrCat("input ", i, " has ", In(i).count(), " elements, not one"));
  const std::vector<int64_t> values = Ints(i);
  return ok() ? values[0] : absent;
}

double OpCall::DoubleScalar(int i, double absent) {
  if (!Has(i)) return absent;
  if (In(i).count() != 1) Fail(absl::StrCat("input ", i, " has ", In(i).count(), " elements, not one"));
  const std::vector<double> values = Doubles(i);
  return ok() ? values[0] : absent;
}

const AttributeProto* OpCall::Find(absl::string_view name, int type) {
  const AttributeProto* found = FindAttribute(node_, frame_.attributes, name);
  if (found == nullptr || type < 0) return found;
  // Files before IR version 2 say no type; then the field that is present counts.
  if (found->has_type() && found->type() != type) {
    Fail(absl::StrCat("attribute ", JsonQuoted(name, 60), " is of another type than the operator's"));
    return nullptr;
  }
  return found;
}

bool OpCall::HasAttr(absl::string_view name) const {
  return FindAttribute(node_, frame_.attributes, name) != nullptr;
}

int64_t OpCall::Int(absl::string_view name, int64_t absent) {
  const AttributeProto* a = Find(name, AttributeProto::INT);
  return a == nullptr ? absent : a->i();
}

double OpCall::Float(absl::string_view name, double absent) {
  const AttributeProto* a = Find(name, AttributeProto::FLOAT);
  return a == nullptr ? absent : static_cast<double>(a->f());
}

std::string OpCall::Str(absl::string_view name, absl::string_view absent) {
  const AttributeProto* a = Find(name, AttributeProto::STRING);
  return a == nullptr ? std::string(absent) : a->s();
}

std::vector<int64_t> OpCall::IntsAttr(absl::string_view name, std::vector<int64_t> absent) {
  const AttributeProto* a = Find(name, AttributeProto::INTS);
  return a == nullptr ? absent : std::vector<int64_t>(a->ints().begin(), a->ints().end());
}

std::vector<double> OpCall::FloatsAttr(absl::string_view name, std::vector<double> absent) {
  const AttributeProto* a = Find(name, AttributeProto::FLOATS);
  return a == nullptr ? absent : std::vector<double>(a->floats().begin(), a->floats().end());
}

std::vector<std::string> OpCall::StrsAttr(absl::string_view name) {
  const AttributeProto* a = Find(name, AttributeProto::STRINGS);
  return a == nullptr ? std::vector<std::string>()
                      : std::vector<std::string>(a->strings().begin(), a->strings().end());
}

std::optional<OnnxTensor> OpCall::TensorAttr(absl::string_view name) {
  const AttributeProto* a = Find(name, -1);
  if (a == nullptr || !(a->has_t() || a->has_sparse_tensor())) return std::nullopt;
  const std::string place = absl::StrCat("attribute ", JsonQuoted(name, 60));
  ExternalFiles& files = *runner_.model().files;
  absl::StatusOr<OnnxTensor> tensor =
      a->has_t() ? TensorFromProto(a->t(), runner_.model().proto, files, place)
                 : DenseFromSparse(a->sparse_tensor(), files, runner_.limits().elements, place);
  if (tensor.ok()) return *std::move(tensor);
  Fail(tensor.status());
  return std::nullopt;
}

int64_t OpCall::Axis(int64_t axis, int64_t rank) {
  if (axis >= -rank && axis < rank) return axis < 0 ? axis + rank : axis;
  Fail(absl::StrCat("axis ", axis, " of ", rank));
  return 0;
}

void OpCall::Fail(absl::string_view message) { Fail(Error(2008, "", message)); }
void OpCall::Refuse(absl::string_view message) { Fail(Error(2007, "", message)); }
void OpCall::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
}

bool OpCall::Affordable(const Shape& shape) {
  for (const int64_t extent : shape) {
    if (extent < 0) Fail(absl::StrCat("asks for a tensor ", ShapeText(shape)));
  }
  // Without elements a shape is a loop's bound all the same: its other extents count.
  Shape bound = shape;
  for (int64_t& extent : bound) extent = std::max<int64_t>(extent, 1);
  const std::optional<int64_t> count = CheckedElementCount(bound);
  if (ok() && (!count || *count > runner_.limits().elements)) {
    Fail(Error(1902, "",
               absl::StrCat("asks for a tensor ", ShapeText(shape), "; ", runner_.limits().elements,
                            " elements are the most")));
  }
  return ok();
}

bool OpCall::Spend(double work) {
  if (ok() && !runner_.Spend(work)) Fail(Error(1902, "", "the run takes more work than the evaluator does"));
  return ok();
}

const OnnxGraph* OpCall::Body(absl::string_view attribute) const {
  for (const auto& [name, graph] : node_.subgraphs) {
    if (name == attribute) return graph;
  }
  return nullptr;
}

std::vector<OnnxValue> OpCall::RunBody(absl::string_view attribute, std::vector<OnnxValue> inputs) {
  const OnnxGraph* body = Body(attribute);
  if (body == nullptr) Fail(absl::StrCat("has no subgraph ", JsonQuoted(attribute, 60)));
  if (!ok()) return {};
  absl::StatusOr<std::vector<OnnxValue>> outputs = runner_.RunSubgraph(*body, std::move(inputs), frame_);
  if (outputs.ok()) return *std::move(outputs);
  Fail(outputs.status());
  return {};
}

}  // namespace twinforge
