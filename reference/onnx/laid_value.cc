#include "reference/onnx/laid_value.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/check.h"

namespace twinforge {
namespace {

std::vector<int> Identity(size_t rank) {
  std::vector<int> order(rank);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

bool IsOne(const Axis& axis) { return axis.size == Dim(1); }

// The type's axes that the tensor has, in its order.
std::vector<int> Present(const LaidValue& x) {
  std::vector<int> axes;
  for (size_t i = 0; i < x.place.size(); ++i) {
    if (x.place[i] >= 0) axes.push_back(static_cast<int>(i));
  }
  std::sort(axes.begin(), axes.end(), [&](int a, int b) { return x.place[a] < x.place[b]; });
  return axes;
}

LaidValue Placed(std::string name, const Type& type, absl::Span<const int> order) {
  LaidValue value{std::move(name), type, std::vector<int>(type.axes.size(), -1)};
  for (size_t i = 0; i < order.size(); ++i) value.place[order[i]] = static_cast<int>(i);
  return value;
}

bool Has(absl::Span<const int64_t> axes, int64_t axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

}  // namespace

std::vector<Dim> DimsOf(const Type& type) {
  std::vector<Dim> dims;
  for (const Axis& axis : type.axes) dims.push_back(axis.size);
  return dims;
}

LaidValue LaidInOrder(std::string name, const Type& type) {
  return {std::move(name), type, Identity(type.axes.size())};
}

LaidValue LaidEverywhere(std::string name, const Type& type) {
  return {std::move(name), type, std::vector<int>(type.axes.size(), -1)};
}

// ---- sizes

// "seq", "2*seq", "4"
std::string OnnxBody::Term(absl::string_view term) {
  std::string product;
  for (absl::string_view factor : absl::StrSplit(term, '*')) {
    int64_t number = 0;
    const std::string one =
        absl::SimpleAtoi(factor, &number) ? nodes_.Integers({number}) : extent_(std::string(factor));
    product = product.empty() ? one : nodes_.Op("Mul", {product, one});
  }
  return product;
}

std::string OnnxBody::Size(const Dim& dim) {
  std::string sum;
  for (absl::string_view term : absl::StrSplit(dim.Text(), " + ")) {
    const std::string one = Term(term);
    sum = sum.empty() ? one : nodes_.Op("Add", {sum, one});
  }
  return sum;
}

std::string OnnxBody::Sizes(const std::vector<Dim>& dims) {
  std::vector<std::string> parts;
  std::vector<int64_t> run;
  const auto close = [&] {
    if (!run.empty()) parts.push_back(nodes_.Integers(run));
    run.clear();
  };
  for (const Dim& dim : dims) {
    if (dim.value()) {
      run.push_back(*dim.value());
      continue;
    }
    close();
    parts.push_back(Size(dim));
  }
  close();
  if (parts.empty()) return nodes_.Integers({});
  return parts.size() == 1 ? parts[0] : nodes_.Op("Concat", parts, {OnnxAttribute("axis", int64_t{0})});
}

// ---- tensors by name

std::string OnnxBody::Transposed(const std::string& x, const std::vector<int64_t>& permutation) {
  if (std::is_sorted(permutation.begin(), permutation.end())) return x;
  return nodes_.Op("Transpose", {x}, {OnnxAttribute("perm", permutation)});
}

std::string OnnxBody::Reshaped(const std::string& x, const std::vector<Dim>& from,
                               const std::vector<Dim>& to) {
  if (from == to) return x;
  // 0 keeps a size that stands where it stood, -1 is the one that follows from the others.
  bool follows = false;
  std::vector<Dim> sizes;
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i].value()) {
      sizes.push_back(to[i]);
    } else if (i < from.size() && from[i] == to[i]) {
      sizes.push_back(Dim(0));
    } else if (!follows) {
      follows = true;
      sizes.push_back(Dim(-1));
    } else {
      sizes.push_back(to[i]);
    }
  }
  return nodes_.Op("Reshape", {x, Sizes(sizes)});
}

std::string OnnxBody::Sliced(const std::string& x, int64_t axis, int64_t start, int64_t size) {
  return nodes_.Op("Slice",
                   {x, nodes_.Integers({start}), nodes_.Integers({start + size}), nodes_.Integers({axis})});
}

std::string OnnxBody::Cast(const std::string& x, DType dtype) {
  return nodes_.Op("Cast", {x}, {OnnxAttribute("to", int64_t{OnnxTypeOfValue(dtype)})});
}

// ---- values as tensors

std::string OnnxBody::InOrder(const LaidValue& x, absl::Span<const int> order) {
  std::vector<int64_t> permutation, ones;
  int64_t rank = 0;
  for (int axis : order) {
    if (x.place[axis] >= 0) {
      permutation.push_back(x.place[axis]);
      ++rank;
    } else if (rank > 0) {
      ones.push_back(rank++);
    }
  }
  const std::string turned = Transposed(x.name, permutation);
  return ones.empty() ? turned : nodes_.Op("Unsqueeze", {turned, nodes_.Integers(ones)});
}

std::string OnnxBody::Full(const LaidValue& x, absl::Span<const int> order) {
  std::vector<Dim> dims;
  std::vector<int64_t> ones, permutation;
  bool repeats = false;
  for (size_t i = 0; i < order.size(); ++i) {
    const int axis = order[i];
    dims.push_back(x.type.axes[axis].size);
    if (x.place[axis] >= 0) {
      permutation.push_back(x.place[axis]);
      continue;
    }
    ones.push_back(static_cast<int64_t>(i));
    repeats = repeats || !IsOne(x.type.axes[axis]);
  }
  if (ones.empty()) return Transposed(x.name, permutation);
  if (repeats) return nodes_.Op("Expand", {InOrder(x, order), Sizes(dims)});
  return nodes_.Op("Unsqueeze", {Transposed(x.name, permutation), nodes_.Integers(ones)});
}

std::string OnnxBody::Full(const LaidValue& x) { return Full(x, Identity(x.type.axes.size())); }

// ---- values of values

LaidValue OnnxBody::Elementwise(absl::string_view op, const std::vector<LaidValue>& xs, const Type& type) {
  std::vector<bool> there(type.axes.size(), false);
  for (const LaidValue& x : xs) {
    TWIN_CHECK(x.place.size() == there.size(), "elementwise operands have equal axes");
    for (size_t i = 0; i < there.size(); ++i) there[i] = there[i] || x.place[i] >= 0;
  }
  std::vector<int> order;
  for (size_t i = 0; i < there.size(); ++i) {
    if (there[i]) order.push_back(static_cast<int>(i));
  }
  // As the first one lies that has them all, so that it is not turned.
  for (const LaidValue& x : xs) {
    const std::vector<int> own = Present(x);
    if (own.size() != order.size()) continue;
    order = own;
    break;
  }
  std::vector<std::string> names;
  for (const LaidValue& x : xs) names.push_back(InOrder(x, order));
  return Placed(nodes_.Op(op, names), type, order);
}

LaidValue OnnxBody::Convert(const LaidValue& x, DType dtype) {
  LaidValue value = x;
  value.type.dtype = dtype;
  if (OnnxTypeOfValue(x.type.dtype) == OnnxTypeOfValue(dtype)) return value;
  // To integers the house rounds to nearest, a Cast cuts off.
  const std::string whole = IsFloat(x.type.dtype) && IsInteger(dtype) ? nodes_.Op("Round", {x.name}) : x.name;
  value.name = Cast(whole, dtype);
  return value;
}

LaidValue OnnxBody::Broadcast(const LaidValue& x, const Type& type, absl::Span<const int64_t> axes) {
  LaidValue value{x.name, type, std::vector<int>(type.axes.size(), -1)};
  for (size_t i = 0; i < axes.size(); ++i) value.place[axes[i]] = x.place[i];
  return value;
}

LaidValue OnnxBody::Reshape(const LaidValue& x, const Type& type) {
  const std::vector<Dim> from = DimsOf(x.type), to = DimsOf(type);
  if (from == to) return {x.name, type, x.place};
  const std::vector<int> present = Present(x);
  if (present.empty()) return LaidEverywhere(x.name, type);
  // Axes of one place that the tensor does not have come and go for nothing.
  std::vector<int> kept, target;
  bool free = true;
  for (size_t i = 0; i < from.size(); ++i) {
    if (!IsOne(x.type.axes[i])) kept.push_back(static_cast<int>(i));
    free = free && (!IsOne(x.type.axes[i]) || x.place[i] < 0);
  }
  for (size_t i = 0; i < to.size(); ++i) {
    if (!IsOne(type.axes[i])) target.push_back(static_cast<int>(i));
  }
  free = free && kept.size() == target.size();
  for (size_t i = 0; free && i < kept.size(); ++i) free = from[kept[i]] == to[target[i]];
  if (free) {
    LaidValue value{x.name, type, std::vector<int>(to.size(), -1)};
    for (size_t i = 0; i < kept.size(); ++i) value.place[target[i]] = x.place[kept[i]];
    return value;
  }
  return LaidInOrder(Reshaped(Full(x), from, to), type);
}

LaidValue OnnxBody::Transpose(const LaidValue& x, absl::Span<const int64_t> permutation) {
  LaidValue value{x.name, {x.type.dtype, {}}, {}};
  for (int64_t axis : permutation) {
    value.type.axes.push_back(x.type.axes[axis]);
    value.place.push_back(x.place[axis]);
  }
  return value;
}

LaidValue OnnxBody::Slice(const LaidValue& x, int64_t axis, int64_t start, int64_t size, const Type& type) {
  if (x.place[axis] < 0) return {x.name, type, x.place};
  return {Sliced(x.name, x.place[axis], start, size), type, x.place};
}

LaidValue OnnxBody::Reverse(const LaidValue& x, int64_t axis) {
  if (x.place[axis] < 0) return x;
  LaidValue value = x;
  // From the last place to before the first one.
  value.name = nodes_.Op("Slice", {x.name, nodes_.Integers({-1}),
                                   nodes_.Integers({-int64_t{std::numeric_limits<int32_t>::max()}}),
                                   nodes_.Integers({x.place[axis]}), nodes_.Integers({-1})});
  return value;
}

LaidValue OnnxBody::Concat(const std::vector<LaidValue>& xs, int64_t axis, const Type& type) {
  std::vector<int> order = Present(xs[0]);
  if (order.size() != type.axes.size()) order = Identity(type.axes.size());
  std::vector<std::string> names;
  for (const LaidValue& x : xs) names.push_back(Full(x, order));
  const int64_t at = std::find(order.begin(), order.end(), axis) - order.begin();
  return Placed(nodes_.Op("Concat", names, {OnnxAttribute("axis", at)}), type, order);
}

LaidValue OnnxBody::Reduce(ReduceAttrs::Kind kind, const LaidValue& x, absl::Span<const int64_t> axes,
                           const Type& type) {
  LaidValue from = x;
  for (int64_t axis : axes) {
    if (kind == ReduceAttrs::SUM && from.place[axis] < 0 && !IsOne(x.type.axes[axis]))
      from = LaidInOrder(Full(x), x.type);
  }
  std::vector<int64_t> gone;
  for (int64_t axis : axes) {
    if (from.place[axis] >= 0) gone.push_back(from.place[axis]);
  }
  std::sort(gone.begin(), gone.end());
  std::vector<int> left;  // axes of the result, as the tensor has them
  LaidValue value{from.name, type, {}};
  for (size_t i = 0; i < from.place.size(); ++i) {
    if (Has(axes, static_cast<int64_t>(i))) continue;
    const int at = from.place[i];
    const auto before = std::count_if(gone.begin(), gone.end(), [at](int64_t g) { return g < at; });
    value.place.push_back(at < 0 ? -1 : at - static_cast<int>(before));
  }
  if (gone.empty()) return value;
  const OnnxAttributeList flat = {OnnxAttribute("keepdims", int64_t{0})};
  if (kind == ReduceAttrs::SUM) {
    value.name = nodes_.Op("ReduceSum", {from.name, nodes_.Integers(gone)}, flat);
    return value;
  }
  const absl::string_view op = kind == ReduceAttrs::MAX ? "ReduceMax" : "ReduceMin";
  if (opset_ >= 18) {
    value.name = nodes_.Op(op, {from.name, nodes_.Integers(gone)}, flat);
  } else {
    value.name = nodes_.Op(op, {from.name}, {OnnxAttribute("axes", gone), flat[0]});
  }
  return value;
}

namespace {

// The axes of one operand of a product, by their part in it.
struct Parts {
  std::vector<int> batch, free, contract;

  std::vector<int> Joined(const std::vector<int>& second, const std::vector<int>& third) const {
    std::vector<int> order = batch;
    order.insert(order.end(), second.begin(), second.end());
    order.insert(order.end(), third.begin(), third.end());
    return order;
  }
};

template <typename Repeated>
Parts PartsOf(const Type& type, const Repeated& batch, const Repeated& contract) {
  Parts parts;
  parts.batch.assign(batch.begin(), batch.end());
  parts.contract.assign(contract.begin(), contract.end());
  for (size_t i = 0; i < type.axes.size(); ++i) {
    const int axis = static_cast<int>(i);
    if (std::count(batch.begin(), batch.end(), axis) + std::count(contract.begin(), contract.end(), axis) ==
        0)
      parts.free.push_back(axis);
  }
  return parts;
}

std::vector<Dim> DimsAt(const Type& type, const std::vector<int>& axes) {
  std::vector<Dim> dims;
  for (int axis : axes) dims.push_back(type.axes[axis].size);
  return dims;
}

Dim Product(const std::vector<Dim>& dims) {
  Dim product(1);
  for (const Dim& dim : dims) product = product * dim;
  return product;
}

}  // namespace

LaidValue OnnxBody::Dot(const LaidValue& x, const LaidValue& y, const DotAttrs& dot, const Type& type) {
  const Parts a = PartsOf(x.type, dot.lhs_batch(), dot.lhs_contract());
  const Parts b = PartsOf(y.type, dot.rhs_batch(), dot.rhs_contract());
  const std::vector<int> a_order = a.Joined(a.free, a.contract), b_order = b.Joined(b.contract, b.free);
  // [batch.., free, contract] times [batch.., contract, free], each joined into one axis.
  const std::vector<Dim> batch = DimsAt(x.type, a.batch), a_free = DimsAt(x.type, a.free),
                         b_free = DimsAt(y.type, b.free);
  const Dim rows = Product(a_free), inner = Product(DimsAt(x.type, a.contract)), columns = Product(b_free);
  const auto joined = [&](const Dim& first, const Dim& second) {
    std::vector<Dim> dims = batch;
    dims.push_back(first);
    dims.push_back(second);
    return dims;
  };
  const std::string left = Reshaped(Full(x, a_order), DimsAt(x.type, a_order), joined(rows, inner));
  const std::string right = Reshaped(Full(y, b_order), DimsAt(y.type, b_order), joined(inner, columns));
  return LaidInOrder(Reshaped(nodes_.Op("MatMul", {left, right}), joined(rows, columns), DimsOf(type)), type);
}

LaidValue OnnxBody::Gather(const LaidValue& x, const LaidValue& index, int64_t axis, const Type& type) {
  if (axis == 0) {
    return LaidInOrder(nodes_.Op("Gather", {Full(x), Full(index)}, {OnnxAttribute("axis", int64_t{0})}),
                       type);
  }
  // One row of places for each element before the axis.
  const std::string places =
      nodes_.Op("Unsqueeze", {Full(index), nodes_.Integers({static_cast<int64_t>(index.type.axes.size())})});
  return LaidInOrder(nodes_.Op("GatherND", {Full(x), places}, {OnnxAttribute("batch_dims", axis)}), type);
}

LaidValue OnnxBody::TopK(const LaidValue& x, int64_t k, const Type& type) {
  const OnnxAttributeList attributes = {OnnxAttribute("axis", int64_t{-1}),
                                        OnnxAttribute("largest", int64_t{1}),
                                        OnnxAttribute("sorted", int64_t{1})};
  return LaidInOrder(nodes_.OpOf("TopK", {Full(x), nodes_.Integers({k})}, attributes, 2, 1), type);
}

LaidValue OnnxBody::Iota(const Type& type, int64_t axis) {
  const Dim& size = type.axes[axis].size;
  LaidValue value = LaidEverywhere("", type);
  value.place[axis] = 0;
  const DType counted = DType::kI64;
  if (size.value()) {
    std::vector<double> places(static_cast<size_t>(*size.value()));
    std::iota(places.begin(), places.end(), 0.0);
    value.name = nodes_.Numbers(counted, {*size.value()}, places);
  } else {
    const std::string end = nodes_.Op("Squeeze", {Size(size), nodes_.Integers({0})});
    value.name = nodes_.Op("Range", {nodes_.Number(counted, 0), end, nodes_.Number(counted, 1)});
  }
  if (OnnxTypeOfValue(type.dtype) != OnnxTypeOfValue(counted)) value.name = Cast(value.name, type.dtype);
  return value;
}

LaidValue OnnxBody::Pad(const LaidValue& x, const PadAttrs& pad, const Type& type) {
  std::vector<int64_t> pads(2 * type.axes.size(), 0);
  pads[pad.axis()] = pad.low();
  pads[type.axes.size() + pad.axis()] = pad.high();
  return LaidInOrder(
      nodes_.Op("Pad", {Full(x), nodes_.Integers(pads), nodes_.Number(x.type.dtype, pad.value())}), type);
}

}  // namespace twinforge
