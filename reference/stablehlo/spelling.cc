#include "reference/stablehlo/spelling.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "reference/stablehlo/spelling_parts.h"

namespace twinforge {
namespace {

template <typename Repeated>
std::vector<int64_t> Numbers(const Repeated& repeated) {
  return {repeated.begin(), repeated.end()};
}

MlirValue SpellElementwise(const Spelling& row, const SpellingInput& in) {
  return in.body.Elementwise(row.says.substr(row.says.find('.') + 1), in.x);
}

// Operands of two dtypes are added in the one that holds both, and the sum is rounded to the first's.
MlirValue SpellAdd(const Spelling&, const SpellingInput& in) {
  const DType first = in.x[0].type.dtype, second = in.x[1].type.dtype;
  const DType wide = IsLossless(first, second) ? second : first;
  const MlirValue sum =
      in.body.Elementwise("add", {in.body.Convert(in.x[0], wide), in.body.Convert(in.x[1], wide)});
  return in.body.Convert(sum, first);
}

MlirValue SpellCompare(const Spelling&, const SpellingInput& in) {
  return in.body.Compare(CompareAttrs::Direction_Name(in.node.attrs->compare().direction()), in.x[0], in.x[1]);
}

MlirValue SpellConvert(const Spelling&, const SpellingInput& in) {
  return in.body.Convert(in.x[0], in.type.dtype);
}

MlirValue SpellSelect(const Spelling&, const SpellingInput& in) {
  return in.body.Select(in.x[0], in.x[1], in.x[2]);
}

MlirValue SpellConstant(const Spelling&, const SpellingInput& in) {
  const auto& values = in.node.attrs->constant().values();
  return in.body.Constants({values.begin(), values.end()}, in.type);
}

MlirValue SpellIota(const Spelling&, const SpellingInput& in) {
  return in.body.Iota(in.type, in.node.attrs->iota().axis());
}

MlirValue SpellSize(const Spelling&, const SpellingInput& in) {
  return in.body.Constant(static_cast<double>(in.x[0].type.shape[in.node.attrs->axis().axis()]), in.type);
}

MlirValue SpellBroadcast(const Spelling&, const SpellingInput& in) {
  return in.body.Broadcast(in.x[0], in.type.shape, Numbers(in.node.attrs->broadcast().axes()));
}

MlirValue SpellReshape(const Spelling&, const SpellingInput& in) {
  return in.body.Reshape(in.x[0], in.type.shape);
}

MlirValue SpellTranspose(const Spelling&, const SpellingInput& in) {
  return in.body.Transpose(in.x[0], Numbers(in.node.attrs->transpose().permutation()));
}

// A slice names its axis, and the name stands for the first axis that has it.
MlirValue SpellSlice(const Spelling&, const SpellingInput& in) {
  const SliceAttrs& attrs = in.node.attrs->slice();
  const std::vector<Axis>& axes = in.graph.node(in.node.operands[0]).type.axes;
  int64_t place = 0;
  while (place < static_cast<int64_t>(axes.size()) && axes[place].name != attrs.axis()) ++place;
  return in.body.Slice(in.x[0], place, attrs.start(), attrs.size());
}

MlirValue SpellConcat(const Spelling&, const SpellingInput& in) {
  return in.body.Concat(in.x, in.node.attrs->axis().axis());
}

MlirValue SpellPad(const Spelling&, const SpellingInput& in) {
  const PadAttrs& attrs = in.node.attrs->pad();
  return in.body.Pad(in.x[0], {attrs.axis(), attrs.low(), attrs.high(), attrs.interior(), attrs.value()});
}

MlirValue SpellReverse(const Spelling&, const SpellingInput& in) {
  return in.body.Reverse(in.x[0], in.node.attrs->axis().axis());
}

// What a reduction begins with: the value that gives way to any other.
double Least(DType dtype) {
  if (IsFloat(dtype)) return -std::numeric_limits<double>::infinity();
  if (dtype == DType::kBool || dtype == DType::kU8 || dtype == DType::kU16 || dtype == DType::kU32 ||
      dtype == DType::kU64) {
    return 0;
  }
  return -static_cast<double>(uint64_t{1} << (BitWidth(dtype) - 1));
}

double Most(DType dtype) {
  if (IsFloat(dtype)) return std::numeric_limits<double>::infinity();
  if (dtype == DType::kBool) return 1;
  return static_cast<double>((int64_t{1} << (std::min<int64_t>(BitWidth(dtype), 54) - 1)) - 1);
}

MlirValue SpellReduce(const Spelling&, const SpellingInput& in) {
  const ReduceAttrs& attrs = in.node.attrs->reduce();
  const std::vector<int64_t> axes = Numbers(attrs.axes());
  const DType dtype = in.type.dtype;
  if (attrs.kind() == ReduceAttrs::MAX) return in.body.Reduce("maximum", in.x[0], axes, Least(dtype));
  if (attrs.kind() == ReduceAttrs::MIN) return in.body.Reduce("minimum", in.x[0], axes, Most(dtype));
  return in.body.Reduce("add", in.x[0], axes, 0);
}

MlirValue SpellDot(const Spelling&, const SpellingInput& in) {
  const DotAttrs& attrs = in.node.attrs->dot();
  return in.body.Dot(in.x[0], in.x[1],
                     {Numbers(attrs.lhs_batch()), Numbers(attrs.rhs_batch()), Numbers(attrs.lhs_contract()),
                      Numbers(attrs.rhs_contract())});
}

MlirValue SpellGather(const Spelling&, const SpellingInput& in) {
  return in.body.Gather(in.x[0], in.x[1], in.node.attrs->axis().axis());
}

}  // namespace

absl::Span<const Spelling> Spellings() {
  using K = OpKind;
  static constexpr Spelling kRows[] = {
      {K::kInput, "argument", "", nullptr},
      {K::kParam, "argument", "as its tensor lies in the file", nullptr},
      {K::kConstant, "stablehlo.constant", "", SpellConstant},
      {K::kIota, "stablehlo.iota", "", SpellIota},
      {K::kDimensionSize, "stablehlo.constant", "sizes are numbers", SpellSize},
      {K::kAdd, "stablehlo.add", "operands of two dtypes meet in the wider one", SpellAdd},
      {K::kSubtract, "stablehlo.subtract", "", SpellElementwise},
      {K::kMultiply, "stablehlo.multiply", "", SpellElementwise},
      {K::kDivide, "stablehlo.divide", "", SpellElementwise},
      {K::kMaximum, "stablehlo.maximum", "", SpellElementwise},
      {K::kMinimum, "stablehlo.minimum", "", SpellElementwise},
      {K::kPower, "stablehlo.power", "", SpellElementwise},
      {K::kCompare, "stablehlo.compare", "", SpellCompare},
      {K::kNegate, "stablehlo.negate", "", SpellElementwise},
      {K::kAbs, "stablehlo.abs", "", SpellElementwise},
      {K::kExp, "stablehlo.exponential", "", SpellElementwise},
      {K::kLog, "stablehlo.log", "", SpellElementwise},
      {K::kSqrt, "stablehlo.sqrt", "", SpellElementwise},
      {K::kRsqrt, "stablehlo.rsqrt", "", SpellElementwise},
      {K::kTanh, "stablehlo.tanh", "", SpellElementwise},
      {K::kErf, "stablehlo.divide", "a quotient of polynomials, within 1e-7; chlo.erf in f64", SpellErf},
      {K::kSine, "stablehlo.sine", "", SpellElementwise},
      {K::kCosine, "stablehlo.cosine", "", SpellElementwise},
      {K::kLogistic, "stablehlo.logistic", "", SpellElementwise},
      {K::kFloor, "stablehlo.floor", "", SpellElementwise},
      {K::kSign, "stablehlo.sign", "", SpellElementwise},
      {K::kConvert, "stablehlo.convert", "", SpellConvert},
      {K::kSelect, "stablehlo.select", "", SpellSelect},
      {K::kBroadcast, "stablehlo.broadcast_in_dim", "", SpellBroadcast},
      {K::kReshape, "stablehlo.reshape", "", SpellReshape},
      {K::kTranspose, "stablehlo.transpose", "", SpellTranspose},
      {K::kSlice, "stablehlo.slice", "", SpellSlice},
      {K::kConcat, "stablehlo.concatenate", "", SpellConcat},
      {K::kPad, "stablehlo.pad", "", SpellPad},
      {K::kReverse, "stablehlo.reverse", "", SpellReverse},
      {K::kReduce, "stablehlo.reduce", "", SpellReduce},
      {K::kDot, "stablehlo.dot_general", "", SpellDot},
      {K::kGather, "stablehlo.gather", "", SpellGather},
      {K::kTopK, "stablehlo.sort", "stable, of values with their places; then a slice", SpellTopK},
      {K::kConv, "stablehlo.convolution", "", SpellConv},
      {K::kScan, "stablehlo.while", "a loop over the sequence", SpellScan},
      {K::kOpaque, "", "an imported op without a meaning of its own here", nullptr},
  };
  return kRows;
}

MlirValue Spell(const SpellingInput& in) {
  const Spelling& row = Spellings()[static_cast<size_t>(in.node.op)];
  TWIN_CHECK(row.kind == in.node.op && row.write != nullptr, "the op can be said");
  const MlirValue value = row.write(row, in);
  TWIN_CHECK(value.type == in.type, "what is said has the node's type");
  return value;
}

}  // namespace twinforge
