#include "reference/onnx/weight_tensor.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace twinforge {
namespace {

// A tensor by name with its sizes.
struct Sized {
  std::string name;
  std::vector<Dim> dims;
};

bool OutFirst(const Param& param) { return param.storage.orientation == Orientation::kOutIn; }

std::vector<Dim> SizesOf(const ParamType& type, int first, int end) {
  std::vector<Dim> dims;
  for (int i = first; i < end; ++i) dims.push_back(Dim(type.axes[i].size));
  return dims;
}

std::vector<Dim> LeadOf(const ParamType& type) { return SizesOf(type, 0, type.lead); }
std::vector<Dim> InOf(const ParamType& type) { return SizesOf(type, type.lead, type.lead + type.in); }
std::vector<Dim> OutOf(const ParamType& type) {
  return SizesOf(type, type.lead + type.in, static_cast<int>(type.axes.size()));
}

int64_t Count(const std::vector<Dim>& dims) {
  int64_t product = 1;
  for (const Dim& dim : dims) product *= dim.value().value_or(1);
  return product;
}

std::vector<Dim> Joined(std::vector<Dim> first, const std::vector<Dim>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// What was read of the stored tensor in `dtype`, by way of the parameter's own: it may be a narrower one.
std::string InType(OnnxBody& body, std::string x, const WeightTensor& weight, DType dtype) {
  DType have = weight.dtype;
  for (DType next : {weight.param->type.dtype, dtype}) {
    if (OnnxTypeOfTensor(have) != OnnxTypeOfValue(next)) x = body.Cast(x, next);
    have = next == DType::kI32 ? DType::kI64 : next;
  }
  return x;
}

// The part of axis `place` of x that is the weight's own, where x has it joined with its bundle's others.
Sized OwnPart(OnnxBody& body, const Sized& x, const WeightTensor& weight, int64_t place) {
  if (weight.bundle == nullptr) return x;
  const std::vector<std::string>& members = weight.bundle->members;
  const int64_t joined = *x.dims[place].value(), own = Count(OutOf(weight.param->type));
  const auto count = static_cast<int64_t>(members.size());
  const auto member = std::find(members.begin(), members.end(), weight.param->role) - members.begin();
  std::vector<Dim> split = x.dims, part = x.dims, single = x.dims;
  single[place] = Dim(own);
  const bool interleaved = weight.bundle->arrangement == Bundle::Arrangement::kInterleave;
  const int64_t shards = weight.bundle->shards;
  int64_t start = member, size = 1, groups = joined / count, each = count;
  if (!interleaved) {
    start = 0;
    for (int64_t i = 0; i < member; ++i) start += Count(OutOf(weight.graph->FindParam(members[i])->type));
    if (shards == 1) return {body.Sliced(x.name, place, start, own), single};
    start /= shards;
    size = own / shards;
    groups = shards;
    each = joined / shards;
  }
  split[place] = part[place] = Dim(groups);
  split.insert(split.begin() + place + 1, Dim(each));
  part.insert(part.begin() + place + 1, Dim(size));
  const std::string cut = body.Sliced(body.Reshaped(x.name, x.dims, split), place + 1, start, size);
  return {body.Reshaped(cut, part, single), single};
}

std::vector<Dim> StoredDims(const WeightTensor& weight) {
  std::vector<Dim> dims;
  for (int64_t extent : weight.shape) dims.push_back(Dim(extent));
  return dims;
}

template <typename Repeated>
bool IsRunFrom(const Repeated& places, int64_t first) {
  for (int i = 0; i < places.size(); ++i) {
    if (places.Get(i) != first + i) return false;
  }
  return true;
}

// One matrix [in, out] or, where `turned`, [out, in], out of the stored tensor; with lead axes contracted
// they belong to `in`, else to `out`.
struct Matrix {
  std::string name;
  bool turned = false;
};

Matrix MatrixOf(OnnxBody& body, const WeightTensor& weight, DType dtype, bool lead_in) {
  const ParamType& type = weight.param->type;
  const std::string stored = InType(body, weight.name, weight, dtype);
  const bool out_first = OutFirst(*weight.param);
  if (type.lead == 0) return {stored, out_first};
  const std::vector<Dim> dims = StoredDims(weight);
  const Dim lead(Count(LeadOf(type)));
  const Dim first = dims[type.lead], second = dims[type.lead + 1];
  if (out_first != lead_in) {  // lead and the axis after it are of one kind: they lie under each other
    const std::vector<Dim> matrix = {Dim(*lead.value() * *first.value()), second};
    return {body.Reshaped(stored, dims, matrix), out_first};
  }
  std::vector<int64_t> swapped(dims.size());
  std::iota(swapped.begin(), swapped.end(), int64_t{0});
  std::swap(swapped[type.lead], swapped[type.lead + 1]);
  std::vector<Dim> turned = dims;
  std::swap(turned[type.lead], turned[type.lead + 1]);
  const std::vector<Dim> matrix = {Dim(*lead.value() * *second.value()), first};
  return {body.Reshaped(body.Transposed(stored, swapped), turned, matrix), !out_first};
}

// [.., in] times the matrix: [.., out]. One that is turned goes through Gemm, which takes it as it lies.
Sized Times(OnnxBody& body, const LaidValue& x, const std::vector<Dim>& free, const Dim& in,
            const Matrix& matrix, const Dim& out) {
  const std::vector<Dim> from = DimsOf(x.type);
  if (!matrix.turned) {
    const std::string left = body.Reshaped(body.Full(x), from, Joined(free, {in}));
    return {body.nodes().Op("MatMul", {left, matrix.name}), Joined(free, {out})};
  }
  Dim rows(1);
  for (const Dim& dim : free) rows = rows * dim;
  const std::string left = body.Reshaped(body.Full(x), from, {rows, in});
  return {body.nodes().Op("Gemm", {left, matrix.name}, {OnnxAttribute("transB", int64_t{1})}), {rows, out}};
}

// The usual product: x's last axes with all in axes of the weight, and with its lead axes or none of them.
std::optional<LaidValue> PlainTensorProduct(OnnxBody& body, const LaidValue& x, const WeightTensor& weight,
                                            const DotAttrs& dot, const Type& result) {
  const ParamType& type = weight.param->type;
  const auto rank = static_cast<int64_t>(x.type.axes.size());
  const int64_t count = dot.rhs_contract_size();
  const std::vector<Dim> lead = LeadOf(type), in = InOf(type), out = OutOf(type);
  const bool lead_in = count == type.lead + type.in && type.lead > 0;
  if (in.empty() || out.empty() || dot.lhs_batch_size() > 0 || (count != type.in && !lead_in) ||
      !IsRunFrom(dot.rhs_contract(), lead_in ? 0 : type.lead) ||
      !IsRunFrom(dot.lhs_contract(), rank - count)) {
    return std::nullopt;
  }
  std::vector<Dim> free = DimsOf(x.type);
  free.resize(rank - count);
  const Dim inner(Count(in) * (lead_in ? Count(lead) : 1));
  // Of a bundle, all members' places.
  const Dim all = StoredDims(weight)[type.lead + (OutFirst(*weight.param) ? 0 : 1)];
  const bool spread = type.lead > 0 && !lead_in;  // each lead index gives a result of its own
  const Dim columns(*all.value() * (spread ? Count(lead) : 1));
  Sized y = Times(body, x, free, inner, MatrixOf(body, weight, x.type.dtype, lead_in), columns);
  if (spread && weight.bundle != nullptr) {
    const std::vector<Dim> apart = {Dim(Count(lead)), all};
    const std::vector<Dim> before(y.dims.begin(), y.dims.end() - 1);
    y = {body.Reshaped(y.name, y.dims, Joined(before, apart)), Joined(before, apart)};
  }
  y = OwnPart(body, y, weight, static_cast<int64_t>(y.dims.size()) - 1);
  return LaidInOrder(body.Reshaped(y.name, y.dims, DimsOf(result)), result);
}

}  // namespace

LaidValue WholeTensor(OnnxBody& body, const WeightTensor& weight, DType dtype) {
  const ParamType& type = weight.param->type;
  const int rank = static_cast<int>(type.axes.size());
  Sized own{InType(body, weight.name, weight, dtype), StoredDims(weight)};
  const bool both = type.in > 0 && type.lead + type.in < rank;
  const bool out_first = OutFirst(*weight.param);
  if (type.lead + type.in < rank) own = OwnPart(body, own, weight, type.lead + (both && !out_first ? 1 : 0));
  // The type's axes in the order they are stored.
  std::vector<int> order(rank);
  std::iota(order.begin(), order.end(), 0);
  if (out_first) std::rotate(order.begin() + type.lead, order.begin() + type.lead + type.in, order.end());
  std::vector<Dim> factored;
  for (int axis : order) factored.push_back(Dim(type.axes[axis].size));
  LaidValue value{body.Reshaped(own.name, own.dims, factored), {dtype, {}}, std::vector<int>(rank, -1)};
  for (int i = 0; i < rank; ++i) {
    value.place[order[i]] = i;
    value.type.axes.push_back(
        {type.axes[i].name, Dim(type.axes[i].size), type.axes[i].padded() ? type.axes[i].logical : 0});
  }
  return value;
}

LaidValue TensorProduct(OnnxBody& body, const LaidValue& x, const WeightTensor& weight, const DotAttrs& dot,
                        const Type& type) {
  if (const auto plain = PlainTensorProduct(body, x, weight, dot, type)) return *plain;
  return body.Dot(x, WholeTensor(body, weight, x.type.dtype), dot, type);
}

LaidValue TensorRows(OnnxBody& body, const WeightTensor& weight, const LaidValue& index, DType dtype,
                     const Type& type) {
  const ParamType& table = weight.param->type;
  const bool rows = weight.bundle == nullptr && table.lead == 0 && table.in == 1 && table.axes.size() == 2 &&
                    !OutFirst(*weight.param);
  if (!rows) return body.Gather(WholeTensor(body, weight, dtype), index, 0, type);
  const std::string taken =
      body.nodes().Op("Gather", {weight.name, body.Full(index)}, {OnnxAttribute("axis", int64_t{0})});
  return LaidInOrder(InType(body, taken, weight, dtype), type);
}

}  // namespace twinforge
