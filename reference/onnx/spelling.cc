#include "reference/onnx/spelling.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/diagnostic.h"

namespace twinforge {
namespace {

template <typename Repeated>
std::vector<int64_t> List(const Repeated& repeated) {
  return {repeated.begin(), repeated.end()};
}

LaidValue Plain(const OnnxSpelling& row, const OnnxSpellingInput& in) {
  return in.body.Elementwise(row.says, in.x, in.node.type);
}

// Operands of two dtypes are added in the one that holds both, and the sum is rounded to the first's.
LaidValue InWider(const OnnxSpelling& row, const OnnxSpellingInput& in) {
  const DType first = in.x[0].type.dtype, second = in.x[1].type.dtype;
  const DType wide = IsLossless(first, second) ? second : first;
  Type type = in.node.type;
  type.dtype = wide;
  const LaidValue sum =
      in.body.Elementwise(row.says, {in.body.Convert(in.x[0], wide), in.body.Convert(in.x[1], wide)}, type);
  return in.body.Convert(sum, first);
}

LaidValue OneOverRoot(const OnnxSpelling&, const OnnxSpellingInput& in) {
  return in.body.Elementwise("Reciprocal", {in.body.Elementwise("Sqrt", in.x, in.node.type)}, in.node.type);
}

LaidValue Comparison(const OnnxSpelling&, const OnnxSpellingInput& in) {
  const auto say = [&](absl::string_view op) { return in.body.Elementwise(op, in.x, in.node.type); };
  switch (in.node.attrs->compare().direction()) {
    case CompareAttrs::NE:
      return in.body.Elementwise("Not", {say("Equal")}, in.node.type);
    case CompareAttrs::LT:
      return say("Less");
    case CompareAttrs::LE:
      return say("LessOrEqual");
    case CompareAttrs::GT:
      return say("Greater");
    case CompareAttrs::GE:
      return say("GreaterOrEqual");
    default:
      return say("Equal");
  }
}

LaidValue Converted(const OnnxSpelling&, const OnnxSpellingInput& in) {
  return in.body.Convert(in.x[0], in.node.type.dtype);
}

LaidValue ConstantOf(const OnnxSpelling&, const OnnxSpellingInput& in) {
  const auto& values = in.node.attrs->constant().values();
  const Type& type = in.node.type;
  if (values.size() == 1) return LaidEverywhere(in.body.nodes().Number(type.dtype, values.Get(0)), type);
  Shape shape;
  for (const Axis& axis : type.axes) shape.push_back(axis.size.value().value_or(0));
  return LaidInOrder(in.body.nodes().Numbers(type.dtype, shape, {values.begin(), values.end()}), type);
}

LaidValue IotaOf(const OnnxSpelling&, const OnnxSpellingInput& in) {
  return in.body.Iota(in.node.type, in.node.attrs->iota().axis());
}

LaidValue SizeOf(const OnnxSpelling&, const OnnxSpellingInput& in) {
  OnnxNodes& nodes = in.body.nodes();
  const Dim& dim = in.x[0].type.axes[in.node.attrs->axis().axis()].size;
  if (dim.value())
    return LaidInOrder(nodes.Number(DType::kI64, static_cast<double>(*dim.value())), in.node.type);
  return LaidInOrder(nodes.Op("Squeeze", {in.body.Size(dim), nodes.Integers({0})}), in.node.type);
}

LaidValue Broadcasted(const OnnxSpelling&, const OnnxSpellingInput& in) {
  return in.body.Broadcast(in.x[0], in.node.type, List(in.node.attrs->broadcast().axes()));
}

LaidValue ReshapedTo(const OnnxSpelling&, const OnnxSpellingInput& in) {
  return in.body.Reshape(in.x[0], in.node.type);
}

LaidValue TransposedBy(const OnnxSpelling&, const OnnxSpellingInput& in) {
  LaidValue value = in.body.Transpose(in.x[0], List(in.node.attrs->transpose().permutation()));
  value.type = in.node.type;
  return value;
}

// A slice names its axis, and the name stands for the first axis that has it.
LaidValue SliceOf(const OnnxSpelling&, const OnnxSpellingInput& in) {
  const SliceAttrs& attrs = in.node.attrs->slice();
  const std::vector<Axis>& axes = in.graph.node(in.node.operands[0]).type.axes;
  int64_t place = 0;
  while (place < static_cast<int64_t>(axes.size()) && axes[place].name != attrs.axis()) ++place;
  return in.body.Slice(in.x[0], place, attrs.start(), attrs.size(), in.node.type);
}

LaidValue Concatenated(const OnnxSpelling&, const OnnxSpellingInput& in) {
  return in.body.Concat(in.x, in.node.attrs->axis().axis(), in.node.type);
}

LaidValue Padded(const OnnxSpelling&, const OnnxSpellingInput& in) {
  return in.body.Pad(in.x[0], in.node.attrs->pad(), in.node.type);
}

LaidValue Reversed(const OnnxSpelling&, const OnnxSpellingInput& in) {
  return in.body.Reverse(in.x[0], in.node.attrs->axis().axis());
}

LaidValue Reduced(const OnnxSpelling&, const OnnxSpellingInput& in) {
  const ReduceAttrs& attrs = in.node.attrs->reduce();
  return in.body.Reduce(attrs.kind(), in.x[0], List(attrs.axes()), in.node.type);
}

LaidValue Multiplied(const OnnxSpelling&, const OnnxSpellingInput& in) {
  return in.body.Dot(in.x[0], in.x[1], in.node.attrs->dot(), in.node.type);
}

LaidValue Gathered(const OnnxSpelling&, const OnnxSpellingInput& in) {
  return in.body.Gather(in.x[0], in.x[1], in.node.attrs->axis().axis(), in.node.type);
}

LaidValue LargestOf(const OnnxSpelling&, const OnnxSpellingInput& in) {
  return in.body.TopK(in.x[0], in.node.attrs->top_k().k(), in.node.type);
}

}  // namespace

absl::Span<const OnnxSpelling> OnnxSpellings() {
  using K = OpKind;
  static constexpr OnnxSpelling kRows[] = {
      {K::kInput, "", "an input", nullptr},
      {K::kParam, "", "an initializer, as its tensor lies in the file", nullptr},
      {K::kConstant, "", "an initializer, of one element where it is one value everywhere", ConstantOf},
      {K::kIota, "Range", "", IotaOf},
      {K::kDimensionSize, "Shape", "", SizeOf},
      {K::kAdd, "Add", "operands of two dtypes meet in the wider one", InWider},
      {K::kSubtract, "Sub", "", Plain},
      {K::kMultiply, "Mul", "", Plain},
      {K::kDivide, "Div", "", Plain},
      {K::kMaximum, "Max", "", Plain},
      {K::kMinimum, "Min", "", Plain},
      {K::kPower, "Pow", "", Plain},
      {K::kCompare, "Equal", "Less, LessOrEqual, Greater, GreaterOrEqual, or Not of Equal", Comparison},
      {K::kNegate, "Neg", "", Plain},
      {K::kAbs, "Abs", "", Plain},
      {K::kExp, "Exp", "", Plain},
      {K::kLog, "Log", "", Plain},
      {K::kSqrt, "Sqrt", "", Plain},
      {K::kRsqrt, "Reciprocal", "of Sqrt", OneOverRoot},
      {K::kTanh, "Tanh", "", Plain},
      {K::kErf, "Erf", "", Plain},
      {K::kSine, "Sin", "", Plain},
      {K::kCosine, "Cos", "", Plain},
      {K::kLogistic, "Sigmoid", "", Plain},
      {K::kFloor, "Floor", "", Plain},
      {K::kSign, "Sign", "", Plain},
      {K::kConvert, "Cast", "after Round, where a float becomes an integer", Converted},
      {K::kSelect, "Where", "", Plain},
      {K::kBroadcast, "", "left to the operator that reads it; Expand where that one does not", Broadcasted},
      {K::kReshape, "Reshape", "", ReshapedTo},
      {K::kTranspose, "Transpose", "where somebody needs the other order", TransposedBy},
      {K::kSlice, "Slice", "", SliceOf},
      {K::kConcat, "Concat", "", Concatenated},
      {K::kPad, "Pad", "", Padded},
      {K::kReverse, "Slice", "with a step of -1", Reversed},
      {K::kReduce, "ReduceSum", "ReduceMax, ReduceMin", Reduced},
      {K::kDot, "MatMul", "axes of one kind joined; Gemm with a weight that lies [out, in]", Multiplied},
      {K::kGather, "Gather", "GatherND behind shared axes", Gathered},
      {K::kTopK, "TopK", "", LargestOf},
      {K::kConv, "", "a convolution is not written", nullptr},
      {K::kScan, "", "a recurrence over the sequence is not written", nullptr},
      {K::kOpaque, "", "an imported op without a meaning of its own here", nullptr},
  };
  return kRows;
}

absl::StatusOr<LaidValue> SpellInOnnx(const OnnxSpellingInput& in) {
  const OnnxSpelling& row = OnnxSpellings()[static_cast<size_t>(in.node.op)];
  TWIN_CHECK(row.kind == in.node.op, "rows are in the order of the ops");
  absl::string_view why = row.note;
  bool refused = row.write == nullptr;
  if (in.node.op == OpKind::kPad && in.node.attrs->pad().interior() != 0) {
    refused = true;
    why = "padding between elements is not written";
  }
  if (refused) return Error(1622, in.node.path, absl::StrCat(Info(in.node.op).name, ": ", why));
  return row.write(row, in);
}

}  // namespace twinforge
