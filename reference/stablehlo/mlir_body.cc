#include "reference/stablehlo/mlir_body.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"

namespace twinforge {
namespace {

std::string Arrow(const std::vector<MlirValue>& operands, const MlirType& result) {
  return absl::StrCat(" : ", MlirTypes(operands), " -> ", MlirText(result));
}

bool Holds(const std::vector<int64_t>& places, int64_t place) {
  return std::find(places.begin(), places.end(), place) != places.end();
}

// Axes of x beside batch and contracted ones.
void AppendFree(const MlirValue& x, const std::vector<int64_t>& batch, const std::vector<int64_t>& contract,
                Shape& shape) {
  for (int64_t axis = 0; axis < static_cast<int64_t>(x.type.shape.size()); ++axis) {
    if (!Holds(batch, axis) && !Holds(contract, axis)) shape.push_back(x.type.shape[axis]);
  }
}

std::vector<int64_t> Counted(int64_t first, int64_t count) {
  std::vector<int64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

}  // namespace

std::string MlirBody::NextName() { return absl::StrCat("%", prefix_, count_++); }

void MlirBody::Line(absl::string_view text) { absl::StrAppend(&text_, indent_, text, "\n"); }

MlirValue MlirBody::Op(const std::string& written, MlirType result) {
  const auto known = known_.find(written);
  if (known != known_.end()) return known->second;
  MlirValue value{NextName(), std::move(result)};
  Line(absl::StrCat(value.name, " = ", written));
  known_.emplace(written, value);
  return value;
}

std::vector<MlirValue> MlirBody::Ops(const std::string& written, const std::vector<MlirType>& results) {
  if (results.size() == 1) return {Op(written, results[0])};
  const std::string name = NextName();
  Line(absl::StrCat(name, ":", results.size(), " = ", written));
  std::vector<MlirValue> values;
  for (size_t i = 0; i < results.size(); ++i) values.push_back({absl::StrCat(name, "#", i), results[i]});
  return values;
}

MlirValue MlirBody::Elementwise(absl::string_view op, const std::vector<MlirValue>& operands) {
  for (const MlirValue& x : operands) TWIN_CHECK(x.type == operands[0].type, "operands of one type");
  const MlirType& type = operands[0].type;
  return Op(absl::StrCat("stablehlo.", op, " ", MlirNames(operands), " : ", MlirText(type)), type);
}

MlirValue MlirBody::Compare(absl::string_view direction, const MlirValue& x, const MlirValue& y) {
  const DType dtype = x.type.dtype;
  const absl::string_view kind = IsFloat(dtype) ? "FLOAT" : dtype == DType::kBool ? "UNSIGNED" : "SIGNED";
  const MlirType type{DType::kBool, x.type.shape};
  return Op(absl::StrCat("stablehlo.compare ", direction, ", ", MlirNames({x, y}), ", ", kind,
                         Arrow({x, y}, type)),
            type);
}

MlirValue MlirBody::Select(const MlirValue& p, const MlirValue& x, const MlirValue& y) {
  return Op(absl::StrCat("stablehlo.select ", MlirNames({p, x, y}), " : ", MlirText(p.type), ", ",
                         MlirText(x.type)),
            x.type);
}

MlirValue MlirBody::Convert(const MlirValue& x, DType dtype) {
  if (x.type.dtype == dtype) return x;
  const MlirType type{dtype, x.type.shape};
  return Op(absl::StrCat("stablehlo.convert ", x.name, Arrow({x}, type)), type);
}

MlirValue MlirBody::Constant(double value, const MlirType& type) { return Constants({value}, type); }

MlirValue MlirBody::Constants(const std::vector<double>& values, const MlirType& type) {
  const auto literal = [&](std::string* out, double value) {
    absl::StrAppend(out, MlirLiteral(type.dtype, value));
  };
  std::string written = absl::StrJoin(values, ", ", literal);
  if (values.size() > 1) {
    // Row-major brackets: only lists are nested in the house so far, matrices by their rows.
    const auto last = static_cast<size_t>(type.shape.empty() ? 1 : type.shape.back());
    std::vector<std::string> rows;
    for (size_t at = 0; at < values.size(); at += last) {
      rows.push_back(absl::StrCat(
          "[", absl::StrJoin(values.begin() + at, values.begin() + at + last, ", ", literal), "]"));
    }
    for (size_t axis = type.shape.size() - 1; axis-- > 0;) {
      const auto extent = static_cast<size_t>(type.shape[axis]);
      std::vector<std::string> outer;
      for (size_t at = 0; at < rows.size(); at += extent) {
        outer.push_back(
            absl::StrCat("[", absl::StrJoin(rows.begin() + at, rows.begin() + at + extent, ", "), "]"));
      }
      rows = std::move(outer);
    }
    written = rows[0];
  }
  return Op(absl::StrCat("stablehlo.constant dense<", written, "> : ", MlirText(type)), type);
}

MlirValue MlirBody::Iota(const MlirType& type, int64_t axis) {
  return Op(absl::StrCat("stablehlo.iota dim = ", axis, " : ", MlirText(type)), type);
}

MlirValue MlirBody::Broadcast(const MlirValue& x, const Shape& shape, const std::vector<int64_t>& places) {
  if (x.type.shape == shape) return x;
  const MlirType type{x.type.dtype, shape};
  return Op(
      absl::StrCat("stablehlo.broadcast_in_dim ", x.name, ", dims = ", MlirList(places), Arrow({x}, type)),
      type);
}

MlirValue MlirBody::Reshape(const MlirValue& x, const Shape& shape) {
  if (x.type.shape == shape) return x;
  TWIN_CHECK(ElementCount(x.type.shape) == ElementCount(shape), "a reshape keeps its elements");
  const MlirType type{x.type.dtype, shape};
  return Op(absl::StrCat("stablehlo.reshape ", x.name, Arrow({x}, type)), type);
}

MlirValue MlirBody::Transpose(const MlirValue& x, const std::vector<int64_t>& permutation) {
  if (std::is_sorted(permutation.begin(), permutation.end())) return x;
  MlirType type{x.type.dtype, {}};
  for (int64_t place : permutation) type.shape.push_back(x.type.shape[place]);
  return Op(absl::StrCat("stablehlo.transpose ", x.name, ", dims = ", MlirList(permutation), Arrow({x}, type)),
            type);
}

MlirValue MlirBody::Slice(const MlirValue& x, int64_t axis, int64_t start, int64_t size) {
  if (start == 0 && size == x.type.shape[axis]) return x;
  MlirType type = x.type;
  type.shape[axis] = size;
  std::vector<std::string> ranges;
  for (int64_t i = 0; i < static_cast<int64_t>(type.shape.size()); ++i) {
    const int64_t from = i == axis ? start : 0;
    ranges.push_back(absl::StrCat(from, ":", from + type.shape[i]));
  }
  return Op(
      absl::StrCat("stablehlo.slice ", x.name, " [", absl::StrJoin(ranges, ", "), "]", Arrow({x}, type)),
      type);
}

MlirValue MlirBody::Concat(const std::vector<MlirValue>& xs, int64_t axis) {
  if (xs.size() == 1) return xs[0];
  MlirType type = xs[0].type;
  for (size_t i = 1; i < xs.size(); ++i) type.shape[axis] += xs[i].type.shape[axis];
  return Op(absl::StrCat("stablehlo.concatenate ", MlirNames(xs), ", dim = ", axis, Arrow(xs, type)), type);
}

MlirValue MlirBody::Pad(const MlirValue& x, const Padding& padding) {
  const MlirValue value = Constant(padding.value, {x.type.dtype, {}});
  const size_t rank = x.type.shape.size();
  std::vector<int64_t> low(rank, 0), high(rank, 0), interior(rank, 0);
  low[padding.axis] = padding.low;
  high[padding.axis] = padding.high;
  interior[padding.axis] = padding.interior;
  MlirType type = x.type;
  int64_t& extent = type.shape[padding.axis];
  extent += padding.low + padding.high + std::max<int64_t>(extent - 1, 0) * padding.interior;
  if (type == x.type) return x;
  return Op(absl::StrCat("stablehlo.pad ", MlirNames({x, value}), ", low = ", MlirList(low), ", high = ",
                         MlirList(high), ", interior = ", MlirList(interior), Arrow({x, value}, type)),
            type);
}

MlirValue MlirBody::Reverse(const MlirValue& x, int64_t axis) {
  return Op(absl::StrCat("stablehlo.reverse ", x.name, ", dims = [", axis, "] : ", MlirText(x.type)), x.type);
}

MlirValue MlirBody::Reduce(absl::string_view op, const MlirValue& x, const std::vector<int64_t>& axes,
                           double initial) {
  const MlirValue from = Constant(initial, {x.type.dtype, {}});
  MlirType type{x.type.dtype, {}};
  AppendFree(x, axes, {}, type.shape);
  return Op(absl::StrCat("stablehlo.reduce(", x.name, " init: ", from.name, ") applies stablehlo.", op,
                         " across dimensions = ", MlirList(axes), Arrow({x, from}, type)),
            type);
}

MlirValue MlirBody::Dot(const MlirValue& x, const MlirValue& y, const Product& product) {
  MlirType type{x.type.dtype, {}};
  for (int64_t axis : product.x_batch) type.shape.push_back(x.type.shape[axis]);
  AppendFree(x, product.x_batch, product.x_contract, type.shape);
  AppendFree(y, product.y_batch, product.y_contract, type.shape);
  const bool wide = type.dtype == DType::kF32 || type.dtype == DType::kF64;
  std::string batch;
  if (!product.x_batch.empty()) {
    batch = absl::StrCat(", batching_dims = ", MlirList(product.x_batch), " x ", MlirList(product.y_batch));
  }
  return Op(absl::StrCat("stablehlo.dot_general ", MlirNames({x, y}), batch, ", contracting_dims = ",
                         MlirList(product.x_contract), " x ", MlirList(product.y_contract),
                         wide ? ", precision = [HIGHEST, HIGHEST]" : ", precision = [DEFAULT, DEFAULT]",
                         Arrow({x, y}, type)),
            type);
}

MlirValue MlirBody::Gather(const MlirValue& x, const MlirValue& index, int64_t axis) {
  const auto rank = static_cast<int64_t>(x.type.shape.size());
  const auto places = static_cast<int64_t>(index.type.shape.size());
  MlirType type{x.type.dtype, index.type.shape};
  Shape sizes(x.type.shape);
  for (int64_t i = 0; i <= axis; ++i) sizes[i] = 1;
  type.shape.insert(type.shape.end(), x.type.shape.begin() + axis + 1, x.type.shape.end());
  const std::string shared = MlirList(Counted(0, axis));
  return Op(absl::StrCat("\"stablehlo.gather\"(", MlirNames({x, index}),
                         ") <{dimension_numbers = #stablehlo.gather<offset_dims = ",
                         MlirList(Counted(places, rank - axis - 1)), ", collapsed_slice_dims = [", axis, "]",
                         axis == 0 ? ""
                                   : absl::StrCat(", operand_batching_dims = ", shared,
                                                  ", start_indices_batching_dims = ", shared),
                         ", start_index_map = [", axis, "], index_vector_dim = ", places,
                         ">, indices_are_sorted = false, slice_sizes = array<i64: ",
                         absl::StrJoin(sizes, ", "), ">}>", Arrow({x, index}, type)),
            type);
}

MlirValue MlirBody::UpdateSlice(const MlirValue& x, const MlirValue& update,
                                const std::vector<MlirValue>& at) {
  std::vector<MlirValue> all = {x, update};
  all.insert(all.end(), at.begin(), at.end());
  return Op(absl::StrCat("stablehlo.dynamic_update_slice ", MlirNames(all), Arrow(all, x.type)), x.type);
}

MlirValue MlirBody::DynamicSlice(const MlirValue& x, const std::vector<MlirValue>& at, const Shape& sizes) {
  std::vector<MlirValue> all = {x};
  all.insert(all.end(), at.begin(), at.end());
  const MlirType type{x.type.dtype, sizes};
  return Op(absl::StrCat("stablehlo.dynamic_slice ", MlirNames(all), ", sizes = ", MlirList(sizes),
                         Arrow(all, type)),
            type);
}

}  // namespace twinforge
