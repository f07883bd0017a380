#include "ir/infer_primitive.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "ir/ops/shapes.h"
#include "ir/text.h"

namespace twinforge {
namespace {

using Places = google::protobuf::RepeatedField<int64_t>;

int RankOf(const Type& type) { return static_cast<int>(type.axes.size()); }

bool IsPlace(int64_t axis, const Type& type) { return axis >= 0 && axis < RankOf(type); }

absl::StatusOr<int> PlaceOf(const Node& node, int64_t axis, const Type& type) {
  if (IsPlace(axis, type)) return static_cast<int>(axis);
  return Misfit(node, absl::StrCat(Text(type), " has no axis ", axis));
}

// Places of `type`, each once; ascending where they must be.
absl::Status CheckPlaces(const Node& node, const Places& places, const Type& type, bool ascending) {
  std::vector<bool> seen(type.axes.size(), false);
  int64_t last = -1;
  for (int64_t place : places) {
    TWIN_RETURN_IF_ERROR(PlaceOf(node, place, type).status());
    if (seen[place]) return Misfit(node, absl::StrCat("axis ", place, " stands twice"));
    if (ascending && place < last) return Misfit(node, "axes are not in ascending order");
    seen[place] = true;
    last = place;
  }
  return absl::OkStatus();
}

// A type that stands in attributes: as hostile as any text.
absl::StatusOr<Type> WrittenType(const Node& node, const std::string& text) {
  absl::StatusOr<Type> type = ParseType(text);
  if (!type.ok()) return Misfit(node, absl::StrCat("type ", DiagnosticOf(type.status())->message));
  int64_t product = 1;
  for (const Axis& axis : type->axes) {
    const std::optional<int64_t> size = axis.size.value();
    if ((size && *size < 0) || axis.logical < 0 || (size && axis.logical > *size)) {
      return Misfit(node, absl::StrCat("axis ", axis.name, " of the type ", Text(*type), " is out of range"));
    }
    if (size && *size > 0 && __builtin_mul_overflow(product, *size, &product)) {
      return Misfit(node, absl::StrCat("the type ", Text(*type), " has too many elements"));
    }
  }
  return type;
}

bool SameSize(const Axis& a, const Axis& b) { return a.size == b.size; }

// ---- elementwise

absl::StatusOr<Type> InferBinary(const Node& node, const Type& x, const Type& y) {
  if (x.axes != y.axes) {
    return Misfit(node, absl::StrCat("operands of unequal axes: ", Text(x), " and ", Text(y)));
  }
  // A residual stream may be added to in another type than it has.
  if (x.dtype == y.dtype || node.op == OpKind::kAdd) return x;
  return Misfit(node, absl::StrCat("operands of unequal dtypes: ", Text(x), " and ", Text(y)));
}

absl::StatusOr<Type> InferCompare(const Node& node, const Type& x, const Type& y) {
  const CompareAttrs::Direction direction = node.attrs->compare().direction();
  if (direction == CompareAttrs::UNSET || !CompareAttrs::Direction_IsValid(direction)) {
    return Misfit(node, "a comparison has a direction");
  }
  TWIN_ASSIGN_OR_RETURN(Type type, InferBinary(node, x, y));
  type.dtype = DType::kBool;
  return type;
}

absl::StatusOr<Type> InferSelect(const Node& node, const Type& p, const Type& x, const Type& y) {
  if (p.dtype == DType::kBool && p.axes == x.axes && x == y) return x;
  return Misfit(node, absl::StrCat("where ", Text(p), " then ", Text(x), " else ", Text(y)));
}

absl::StatusOr<Type> InferFloat(const Node& node, const Type& x) {
  if (IsFloat(x.dtype)) return x;
  return Misfit(node, absl::StrCat(Text(x), " is not of floating type"));
}

absl::StatusOr<Type> InferConvert(const Node& node, Type x) {
  const std::optional<DType> dtype = DTypeFromName(node.attrs->convert().dtype());
  if (!dtype || *dtype == DType::kC64) return Misfit(node, "converts to no dtype that is known");
  x.dtype = *dtype;
  return x;
}

// ---- sources

absl::StatusOr<Type> InferParam(const Graph& graph, const Node& node) {
  TWIN_ASSIGN_OR_RETURN(const Param* param, ParamIn(graph, node, "value"));
  Type type{param->type.dtype, {}};
  for (const ParamAxis& axis : param->type.axes) type.axes.push_back(ActivationAxis(axis));
  return type;
}

absl::StatusOr<Type> InferConstant(const Node& node) {
  const ConstantAttrs& attrs = node.attrs->constant();
  TWIN_ASSIGN_OR_RETURN(Type type, WrittenType(node, attrs.type()));
  if (attrs.values_size() == 1) return type;
  int64_t product = 1;
  for (const Axis& axis : type.axes) product *= axis.size.value().value_or(0);
  if (product == attrs.values_size()) return type;
  return Misfit(node, absl::StrCat(attrs.values_size(), " values for ", Text(type)));
}

absl::StatusOr<Type> InferIota(const Node& node) {
  const IotaAttrs& attrs = node.attrs->iota();
  TWIN_ASSIGN_OR_RETURN(Type type, WrittenType(node, attrs.type()));
  TWIN_RETURN_IF_ERROR(PlaceOf(node, attrs.axis(), type).status());
  return type;
}

// ---- shapes

absl::StatusOr<Type> InferBroadcast(const Node& node, const Type& x) {
  const BroadcastAttrs& attrs = node.attrs->broadcast();
  TWIN_ASSIGN_OR_RETURN(Type type, WrittenType(node, attrs.type()));
  TWIN_RETURN_IF_ERROR(CheckPlaces(node, attrs.axes(), type, true));
  bool fits = type.dtype == x.dtype && attrs.axes_size() == RankOf(x);
  for (int i = 0; fits && i < RankOf(x); ++i) fits = SameSize(x.axes[i], type.axes[attrs.axes(i)]);
  if (fits) return type;
  return Misfit(node, absl::StrCat(Text(x), " does not spread to ", Text(type)));
}

// Symbols must survive one by one; the numbers' product counts.
absl::StatusOr<Type> InferReshape(const Node& node, const Type& x) {
  TWIN_ASSIGN_OR_RETURN(Type type, WrittenType(node, node.attrs->type().type()));
  const auto sizes = [](const Type& of) {
    std::pair<int64_t, std::vector<std::string>> result{1, {}};
    for (const Axis& axis : of.axes) {
      const std::optional<int64_t> size = axis.size.value();
      if (!size) result.second.push_back(axis.size.Text());
      if (size && __builtin_mul_overflow(result.first, *size, &result.first)) result.first = -1;
    }
    std::sort(result.second.begin(), result.second.end());
    return result;
  };
  if (type.dtype == x.dtype && sizes(type) == sizes(x)) return type;
  return Misfit(node, absl::StrCat(Text(x), " does not reshape to ", Text(type)));
}

absl::StatusOr<Type> InferTranspose(const Node& node, const Type& x) {
  const Places& permutation = node.attrs->transpose().permutation();
  TWIN_RETURN_IF_ERROR(CheckPlaces(node, permutation, x, false));
  if (permutation.size() != RankOf(x)) return Misfit(node, "the permutation does not name each axis");
  Type type{x.dtype, {}};
  for (int64_t place : permutation) type.axes.push_back(x.axes[place]);
  return type;
}

absl::StatusOr<Type> InferSlice(const Node& node, Type x) {
  const SliceAttrs& attrs = node.attrs->slice();
  for (Axis& axis : x.axes) {
    if (axis.name != attrs.axis()) continue;
    if (attrs.start() < 0 || attrs.size() < 1) return Misfit(node, "a slice starts before 0 or is empty");
    const std::optional<int64_t> extent = axis.size.value();
    if (extent && (attrs.start() > *extent || attrs.size() > *extent - attrs.start())) {
      return Misfit(node, absl::StrCat("the slice reaches beyond ", axis.name, "=", *extent));
    }
    axis.size = Dim(attrs.size());
    axis.logical = 0;
    return x;
  }
  return Misfit(node, absl::StrCat("the operand has no axis ", attrs.axis()));
}

absl::StatusOr<Type> InferConcat(const Graph& graph, const Node& node) {
  Type type = OperandType(graph, node);
  TWIN_ASSIGN_OR_RETURN(const int place, PlaceOf(node, node.attrs->axis().axis(), type));
  for (size_t i = 1; i < node.operands.size(); ++i) {
    const Type& x = OperandType(graph, node, i);
    bool fits = x.dtype == type.dtype && x.axes.size() == type.axes.size();
    for (int j = 0; fits && j < RankOf(x); ++j) fits = j == place || SameSize(x.axes[j], type.axes[j]);
    if (!fits) return Misfit(node, absl::StrCat(Text(x), " does not join ", Text(type)));
    absl::StatusOr<Dim> sum = type.axes[place].size.CheckedSum(x.axes[place].size);
    if (!sum.ok()) return Misfit(node, "the joined axis is too long");
    type.axes[place].size = *std::move(sum);
  }
  if (node.operands.size() > 1) type.axes[place].logical = 0;
  return type;
}

// n + low + high + (n - 1) interior
absl::StatusOr<Type> InferPad(const Node& node, Type x) {
  const PadAttrs& attrs = node.attrs->pad();
  TWIN_ASSIGN_OR_RETURN(const int place, PlaceOf(node, attrs.axis(), x));
  constexpr int64_t kLimit = int64_t{1} << 40;
  for (int64_t count : {attrs.low(), attrs.high(), attrs.interior()}) {
    if (count < 0 || count > kLimit) return Misfit(node, "padding is negative or beyond all bounds");
  }
  Axis& axis = x.axes[place];
  absl::StatusOr<Dim> size = axis.size.CheckedSum(Dim(attrs.low() + attrs.high()));
  if (attrs.interior() != 0) {
    const std::optional<int64_t> extent = axis.size.value();
    if (!extent || *extent > kLimit) return Misfit(node, "padding between places of an axis without a size");
    const int64_t between = std::max<int64_t>(*extent - 1, 0);
    int64_t inner = 0;
    if (__builtin_mul_overflow(between, attrs.interior(), &inner) || !size.ok()) {
      return Misfit(node, "padding is beyond all bounds");
    }
    size = size->CheckedSum(Dim(inner));
  }
  if (!size.ok()) return Misfit(node, "padding is beyond all bounds");
  axis.size = *std::move(size);
  axis.logical = 0;
  return x;
}

// ---- reductions and products

absl::StatusOr<Type> InferReduce(const Node& node, const Type& x) {
  const ReduceAttrs& attrs = node.attrs->reduce();
  if (attrs.kind() == ReduceAttrs::UNSET || !ReduceAttrs::Kind_IsValid(attrs.kind())) {
    return Misfit(node, "a reduction has a kind");
  }
  TWIN_RETURN_IF_ERROR(CheckPlaces(node, attrs.axes(), x, true));
  Type type{x.dtype, {}};
  for (int i = 0; i < RankOf(x); ++i) {
    if (std::find(attrs.axes().begin(), attrs.axes().end(), i) == attrs.axes().end()) {
      type.axes.push_back(x.axes[i]);
    }
  }
  return type;
}

// Axes of `x` beside batch and contracted ones; both lists are places of x, none twice.
absl::StatusOr<std::vector<Axis>> FreeAxes(const Node& node, const Type& x, const Places& batch,
                                           const Places& contract) {
  Places all = batch;
  all.MergeFrom(contract);
  TWIN_RETURN_IF_ERROR(CheckPlaces(node, all, x, false));
  std::vector<Axis> free;
  for (int i = 0; i < RankOf(x); ++i) {
    if (std::find(all.begin(), all.end(), i) == all.end()) free.push_back(x.axes[i]);
  }
  return free;
}

absl::StatusOr<Type> InferDot(const Node& node, const Type& x, const Type& y) {
  const DotAttrs& attrs = node.attrs->dot();
  TWIN_ASSIGN_OR_RETURN(const std::vector<Axis> left,
                        FreeAxes(node, x, attrs.lhs_batch(), attrs.lhs_contract()));
  TWIN_ASSIGN_OR_RETURN(const std::vector<Axis> right,
                        FreeAxes(node, y, attrs.rhs_batch(), attrs.rhs_contract()));
  const auto match = [&](const Places& a, const Places& b) {
    bool fits = a.size() == b.size();
    for (int i = 0; fits && i < a.size(); ++i) fits = SameSize(x.axes[a[i]], y.axes[b[i]]);
    return fits;
  };
  if (x.dtype != y.dtype || !match(attrs.lhs_batch(), attrs.rhs_batch()) ||
      !match(attrs.lhs_contract(), attrs.rhs_contract())) {
    return Misfit(node, absl::StrCat("no product of ", Text(x), " and ", Text(y)));
  }
  Type type{x.dtype, {}};
  for (int64_t place : attrs.lhs_batch()) type.axes.push_back(x.axes[place]);
  type.axes.insert(type.axes.end(), left.begin(), left.end());
  type.axes.insert(type.axes.end(), right.begin(), right.end());
  return type;
}

absl::StatusOr<Type> InferGather(const Node& node, const Type& x, const Type& index) {
  TWIN_ASSIGN_OR_RETURN(const int place, PlaceOf(node, node.attrs->axis().axis(), x));
  bool fits = IsInteger(index.dtype) && RankOf(index) >= place;
  for (int i = 0; fits && i < place; ++i) fits = SameSize(x.axes[i], index.axes[i]);
  if (!fits)
    return Misfit(node, absl::StrCat(Text(index), " are no places along axis ", place, " of ", Text(x)));
  Type type{x.dtype, index.axes};
  type.axes.insert(type.axes.end(), x.axes.begin() + place + 1, x.axes.end());
  return type;
}

absl::StatusOr<Type> InferTopK(const Node& node, Type x) {
  const int64_t k = node.attrs->top_k().k();
  if (x.axes.empty()) return Misfit(node, "a scalar has no largest elements");
  const std::optional<int64_t> size = x.axes.back().size.value();
  if (k < 1 || (size && k > *size)) return Misfit(node, absl::StrCat("the ", k, " largest of ", Text(x)));
  x.dtype = DType::kI32;
  x.axes.back() = Axis{"top", Dim(k)};
  return x;
}

// (n + low + high - kernel) / stride + 1; without a stride n may be a symbol.
absl::StatusOr<Axis> ConvAxis(const Node& node, const Axis& x, int64_t kernel, int64_t stride,
                              int64_t padding) {
  const std::optional<int64_t> size = x.size.value();
  if (stride == 1) {
    absl::StatusOr<Dim> result = x.size.CheckedSum(Dim(padding - kernel + 1));
    if (result.ok() && (!size || *result->value() >= 1)) return Axis{x.name, *std::move(result)};
  } else if (size && *size + padding >= kernel) {
    return Axis{x.name, Dim((*size + padding - kernel) / stride + 1)};
  }
  return Misfit(node, absl::StrCat("a kernel of ", kernel, " over ", x.name, "=", x.size.Text(),
                                   " padded by ", padding, " in steps of ", stride));
}

absl::StatusOr<Type> InferConv(const Node& node, const Type& x, const Type& kernel) {
  const ConvAttrs& attrs = node.attrs->conv();
  const int spatial = RankOf(x) - 2;
  const int64_t groups = std::max<int64_t>(attrs.groups(), 1);
  if (spatial < 1 || RankOf(kernel) != RankOf(x) || x.dtype != kernel.dtype ||
      attrs.strides_size() != spatial || attrs.low_size() != spatial || attrs.high_size() != spatial ||
      attrs.groups() < 0) {
    return Misfit(node, absl::StrCat("no convolution of ", Text(x), " with ", Text(kernel)));
  }
  Type type{x.dtype, {x.axes[0]}};
  for (int i = 0; i < spatial; ++i) {
    constexpr int64_t kLimit = int64_t{1} << 31;
    const std::optional<int64_t> size = kernel.axes[i].size.value();
    const int64_t numbers[] = {size.value_or(0), attrs.strides(i), attrs.low(i) + 1, attrs.high(i) + 1,
                               x.axes[1 + i].size.value().value_or(1)};
    for (int64_t number : numbers) {
      if (number < 1 || number > kLimit) return Misfit(node, "a convolution's sizes are out of range");
    }
    TWIN_ASSIGN_OR_RETURN(
        Axis axis, ConvAxis(node, x.axes[1 + i], *size, attrs.strides(i), attrs.low(i) + attrs.high(i)));
    type.axes.push_back(std::move(axis));
  }
  const std::optional<int64_t> in = x.axes.back().size.value(), part = kernel.axes[spatial].size.value(),
                               out = kernel.axes.back().size.value();
  if (!in || !part || !out || *in % groups != 0 || *in / groups != *part || *out % groups != 0) {
    return Misfit(node, absl::StrCat(groups, " groups of channels in ", Text(x), " and ", Text(kernel)));
  }
  type.axes.push_back(kernel.axes.back());
  return type;
}

// first [batch, ..], decay [batch, seq, ..], update [batch, seq, ..] -> the axes of update
absl::StatusOr<Type> InferScan(const Graph& graph, const Node& node) {
  const Type &first = OperandType(graph, node), &decay = OperandType(graph, node, 1),
             &update = OperandType(graph, node, 2);
  const ScanAttrs::Product product = node.attrs->scan().product();
  const int rank = RankOf(update);
  const bool matrix = product == ScanAttrs::MATRIX;
  bool fits = ScanAttrs::Product_IsValid(product) && rank >= (matrix ? 4 : 2) && RankOf(first) == rank - 1 &&
              RankOf(decay) == rank && first.dtype == update.dtype && decay.dtype == update.dtype;
  for (int i = 0; fits && i < rank; ++i) {
    fits = (i == 1 || SameSize(first.axes[i == 0 ? 0 : i - 1], update.axes[i])) &&
           SameSize(decay.axes[i], update.axes[matrix && i == rank - 2 ? rank - 1 : i]);
  }
  if (fits) return update;
  return Misfit(node,
                absl::StrCat("no recurrence from ", Text(first), " by ", Text(decay), " and ", Text(update)));
}

}  // namespace

// One row for each op: a table, longer than a function should be.
absl::StatusOr<Type> InferPrimitive(const Graph& graph,  // NOLINT(readability-function-size)
                                    const Node& node) {
  static const auto* const none = new Type();
  const auto x = [&](size_t i) -> const Type& {
    return i < node.operands.size() ? OperandType(graph, node, i) : *none;
  };
  switch (node.op) {
    case OpKind::kParam:
      return InferParam(graph, node);
    case OpKind::kConstant:
      return InferConstant(node);
    case OpKind::kIota:
      return InferIota(node);
    case OpKind::kDimensionSize:
      TWIN_RETURN_IF_ERROR(PlaceOf(node, node.attrs->axis().axis(), x(0)).status());
      return Type{DType::kI32, {}};
    case OpKind::kAdd:
    case OpKind::kSubtract:
    case OpKind::kMultiply:
    case OpKind::kDivide:
    case OpKind::kMaximum:
    case OpKind::kMinimum:
    case OpKind::kPower:
      return InferBinary(node, x(0), x(1));
    case OpKind::kCompare:
      return InferCompare(node, x(0), x(1));
    case OpKind::kNegate:
    case OpKind::kAbs:
    case OpKind::kSign:
      return x(0);
    case OpKind::kExp:
    case OpKind::kLog:
    case OpKind::kSqrt:
    case OpKind::kRsqrt:
    case OpKind::kTanh:
    case OpKind::kErf:
    case OpKind::kSine:
    case OpKind::kCosine:
    case OpKind::kLogistic:
    case OpKind::kFloor:
      return InferFloat(node, x(0));
    case OpKind::kConvert:
      return InferConvert(node, x(0));
    case OpKind::kSelect:
      return InferSelect(node, x(0), x(1), x(2));
    case OpKind::kBroadcast:
      return InferBroadcast(node, x(0));
    case OpKind::kReshape:
      return InferReshape(node, x(0));
    case OpKind::kTranspose:
      return InferTranspose(node, x(0));
    case OpKind::kSlice:
      return InferSlice(node, x(0));
    case OpKind::kConcat:
      return InferConcat(graph, node);
    case OpKind::kPad:
      return InferPad(node, x(0));
    case OpKind::kReverse:
      TWIN_RETURN_IF_ERROR(PlaceOf(node, node.attrs->axis().axis(), x(0)).status());
      return x(0);
    case OpKind::kReduce:
      return InferReduce(node, x(0));
    case OpKind::kDot:
      return InferDot(node, x(0), x(1));
    case OpKind::kGather:
      return InferGather(node, x(0), x(1));
    case OpKind::kTopK:
      return InferTopK(node, x(0));
    case OpKind::kConv:
      return InferConv(node, x(0), x(1));
    case OpKind::kScan:
      return InferScan(graph, node);
    case OpKind::kOpaque:
      return WrittenType(node, node.attrs->opaque().type());
    case OpKind::kInput:
    case OpKind::kLinear:
    case OpKind::kEmbedding:
    case OpKind::kRmsNorm:
    case OpKind::kLayerNorm:
    case OpKind::kAttention:
    case OpKind::kLatentAttention:
    case OpKind::kMlp:
    case OpKind::kGatedMlp:
    case OpKind::kMoe:
    case OpKind::kLmHead:
    case OpKind::kActivation:
    case OpKind::kRope:
    case OpKind::kRouter:
    case OpKind::kConvStem:
    case OpKind::kShortConv:
    case OpKind::kStateSpace:
    case OpKind::kDeltaRule:
      break;
  }
  return Misfit(node, "not a primitive");
}

}  // namespace twinforge
