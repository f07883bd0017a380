// The same elements in other shapes, and tensors made from a shape.
#include <cmath>

#include "onnx/kernels/kernel.h"
#include "onnx/kernels/places.h"
#include "onnx/tensor.h"

namespace twinforge {
namespace {

int64_t RankOf(OpCall& c) { return c.In(0).rank(); }

// Axes are an input since operator set 13, an attribute before.
std::vector<int64_t> AxesOf(OpCall& c) {
  if (c.opset() < 13) return c.IntsAttr("axes");
  return c.Has(1) ? c.Ints(1) : std::vector<int64_t>();
}

void ShapeOf(OpCall& c) {
  const int64_t rank = RankOf(c);
  const auto bound = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  const int64_t start = bound(c.Int("start", 0)), end = bound(c.Int("end", rank));
  const Shape& shape = c.In(0).shape();
  c.Out(0, Int64Tensor(start < end ? Shape(shape.begin() + start, shape.begin() + end) : Shape()));
}

void Size(OpCall& c) {
  const int64_t count = c.In(0).count();
  c.Out(0, TensorOf<int64_t>(ElementType::kInt64, {}, absl::MakeConstSpan(&count, 1)));
}

void Reshape(OpCall& c) {
  Shape shape = c.opset() < 5 ? c.IntsAttr("shape") : c.Has(1) ? c.Ints(1) : Shape();
  const bool allow_zero = c.Int("allowzero", 0) != 0;
  int64_t known = 1, open = -1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0 && !allow_zero) {
      ONNX_EXPECT(c, static_cast<int64_t>(i) < RankOf(c), "keeps an axis that the input has not");
      shape[i] = c.In(0).dim(static_cast<int64_t>(i));
    }
    ONNX_EXPECT(c, shape[i] >= -1 && (shape[i] != -1 || open < 0), "asks for a shape " + ShapeText(shape));
    if (shape[i] == -1) open = static_cast<int64_t>(i);
  }
  if (open >= 0) {
    shape[open] = 1;
    known = CheckedElementCount(shape).value_or(0);
    ONNX_EXPECT(c, known != 0 || c.In(0).count() == 0, "leaves open an axis of a tensor without elements");
    shape[open] = known == 0 ? 0 : c.In(0).count() / known;
  }
  ONNX_EXPECT(c, CheckedElementCount(shape) == c.In(0).count(),
              "cannot make " + ShapeText(shape) + " of " + ShapeText(c.In(0).shape()));
  ONNX_EXPECT(c, c.Affordable(shape), "");
  c.Out(0, c.In(0).WithShape(shape));
}

void Flatten(OpCall& c) {
  const int64_t rank = RankOf(c), given = c.Int("axis", 1);
  ONNX_EXPECT(c, given >= -rank && given <= rank, "its axis is none of the input's");
  const int64_t axis = given < 0 ? given + rank : given;
  Shape shape = {1, 1};
  for (int64_t d = 0; d < rank; ++d) shape[d < axis ? 0 : 1] *= c.In(0).dim(d);
  c.Out(0, c.In(0).WithShape(shape));
}

void Squeeze(OpCall& c) {
  const std::vector<int64_t> given = AxesOf(c);
  std::vector<int64_t> axes = NormalAxes(c, given, RankOf(c));
  ONNX_EXPECT(c, true, "");
  Shape shape;
  const bool all = c.opset() < 13 ? !c.HasAttr("axes") : !c.Has(1);
  for (int64_t d = 0; d < RankOf(c); ++d) {
    const bool named = std::binary_search(axes.begin(), axes.end(), d);
    ONNX_EXPECT(c, !named || c.In(0).dim(d) == 1, "squeezes an axis of more than one element");
    if (all ? c.In(0).dim(d) != 1 : !named) shape.push_back(c.In(0).dim(d));
  }
  c.Out(0, c.In(0).WithShape(shape));
}

void Unsqueeze(OpCall& c) {
  const std::vector<int64_t> given = AxesOf(c);
  const int64_t rank = RankOf(c) + static_cast<int64_t>(given.size());
  const std::vector<int64_t> axes = NormalAxes(c, given, rank);
  ONNX_EXPECT(c, true, "");
  Shape shape;
  int64_t next = 0;
  for (int64_t d = 0; d < rank; ++d) {
    shape.push_back(std::binary_search(axes.begin(), axes.end(), d) ? 1 : c.In(0).dim(next++));
  }
  c.Out(0, c.In(0).WithShape(shape));
}

void Transpose(OpCall& c) {
  std::vector<int64_t> permutation = Counted(RankOf(c));
  std::reverse(permutation.begin(), permutation.end());
  permutation = c.IntsAttr("perm", permutation);
  const std::vector<int64_t> sorted = NormalAxes(c, permutation, RankOf(c));
  ONNX_EXPECT(c, static_cast<int64_t>(sorted.size()) == RankOf(c), "perm is no permutation of the axes");
  for (int64_t& axis : permutation) axis = c.Axis(axis, RankOf(c));
  c.Out(0, Permuted(c.In(0), permutation));
}

void Expand(OpCall& c) {
  const Shape wanted = c.Ints(1);
  ONNX_EXPECT(c, c.Affordable(wanted), "");
  const std::optional<Shape> shape = BroadcastShape(c.In(0).shape(), wanted);
  ONNX_EXPECT(c, shape.has_value(), "does not broadcast to " + ShapeText(wanted));
  ONNX_EXPECT(c, c.Affordable(*shape), "");
  c.Out(0, TakeElements(c.In(0), *shape, BroadcastPlaces(c.In(0).shape(), *shape)));
}

void Tile(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  std::vector<int64_t> repeats;
  if (c.opset() < 6) {
    repeats.assign(x.shape().size(), 1);
    const int64_t axis = c.Axis(c.IntScalar(2, 0), x.rank());
    ONNX_EXPECT(c, !repeats.empty(), "tiles a scalar");
    repeats[axis] = c.IntScalar(1, 1);
  } else {
    repeats = c.Ints(1);
  }
  ONNX_EXPECT(c, static_cast<int64_t>(repeats.size()) == x.rank(), "repeats are not one for each axis");
  Shape shape = x.shape();
  for (size_t d = 0; d < shape.size(); ++d) {
    ONNX_EXPECT(c, repeats[d] >= 0 && (repeats[d] == 0 || shape[d] <= INT64_MAX / repeats[d]),
                "repeats too often");
    shape[d] *= repeats[d];
  }
  ONNX_EXPECT(c, c.Affordable(shape), "");
  const std::vector<int64_t> strides = Strides(x.shape());
  std::vector<int64_t> from(static_cast<size_t>(ElementCount(shape))), index(shape.size());
  for (int64_t& at : from) {
    at = 0;
    for (size_t d = 0; d < shape.size(); ++d) at += index[d] % x.shape()[d] * strides[d];
    NextPlace(shape, index);
  }
  c.Out(0, TakeElements(x, shape, from));
}

void ConstantOfShape(OpCall& c) {
  const Shape shape = c.Ints(0);
  const std::optional<OnnxTensor> value = c.TensorAttr("value");
  ONNX_EXPECT(c, c.Affordable(shape), "");
  ONNX_EXPECT(c, !value || value->count() == 1, "its value is not one element");
  const OnnxTensor one = value ? *value : ScalarOf(ElementType::kFloat, 0);
  c.Out(0, TakeElements(one, shape, std::vector<int64_t>(static_cast<size_t>(ElementCount(shape)), 0)));
}

void EyeLike(OpCall& c) {
  ONNX_EXPECT(c, RankOf(c) == 2, "takes a matrix");
  const std::optional<ElementType> type =
      ElementTypeFromCode(c.Int("dtype", static_cast<int64_t>(c.In(0).type())));
  ONNX_EXPECT(c, type && BytesInMemory(*type) > 0, "names no type of numbers");
  const int64_t rows = c.In(0).dim(0), columns = c.In(0).dim(1), k = c.Int("k", 0);
  std::vector<double> y(static_cast<size_t>(rows * columns));
  for (int64_t i = 0; i < rows; ++i) {
    if (i + k >= 0 && i + k < columns) y[i * columns + i + k] = 1;
  }
  c.Out(0, TensorOf<double>(*type, c.In(0).shape(), y));
}

void Range(OpCall& c) {
  for (int i = 0; i < 3; ++i) {
    ONNX_EXPECT(c, c.In(i).count() == 1 && c.In(i).type() == c.In(0).type(),
                "takes three scalars of one type");
  }
  const bool numbers = WithCarrier(c.In(0).type(), [&](auto zero) {
    using T = decltype(zero);
    const T start = Elements<T>(c.In(0))[0], limit = Elements<T>(c.In(1))[0], delta = Elements<T>(c.In(2))[0];
    ONNX_EXPECT(c, delta != T{0}, "its step is 0");
    const double steps =
        std::ceil((static_cast<double>(limit) - static_cast<double>(start)) / static_cast<double>(delta));
    const int64_t count = steps >= 1 ? (steps < 1e15 ? static_cast<int64_t>(steps) : int64_t{1} << 50) : 0;
    ONNX_EXPECT(c, c.Affordable({count}), "");
    std::vector<T> y(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) y[i] = static_cast<T>(start + static_cast<T>(i) * delta);
    c.Out(0, TensorOf<T>(c.In(0).type(), {count}, y));
  });
  ONNX_EXPECT(c, numbers, "takes numbers");
}

void Concat(OpCall& c) {
  std::vector<OnnxTensor> parts;
  for (int i = 0; i < c.inputs(); ++i) {
    ONNX_EXPECT(c, c.Has(i), "an input is left out");
    parts.push_back(c.In(i));
  }
  ONNX_EXPECT(c, c.opset() < 4 || c.HasAttr("axis"), "names no axis");
  OnnxTensor joined = Joined(c, parts, c.Int("axis", 1));
  if (c.ok()) c.Out(0, std::move(joined));
}

void Constant(OpCall& c) {
  if (const std::optional<OnnxTensor> value = c.TensorAttr(c.HasAttr("value") ? "value" : "sparse_value")) {
    return c.Out(0, *value);
  }
  if (c.HasAttr("value_float")) return c.Out(0, ScalarOf(ElementType::kFloat, c.Float("value_float", 0)));
  if (c.HasAttr("value_floats")) {
    const std::vector<double> values = c.FloatsAttr("value_floats");
    return c.Out(0, TensorOf<double>(ElementType::kFloat, {static_cast<int64_t>(values.size())}, values));
  }
  if (c.HasAttr("value_int")) {
    const int64_t value = c.Int("value_int", 0);
    return c.Out(0, TensorOf<int64_t>(ElementType::kInt64, {}, absl::MakeConstSpan(&value, 1)));
  }
  if (c.HasAttr("value_ints")) return c.Out(0, Int64Tensor(c.IntsAttr("value_ints")));
  if (c.HasAttr("value_string")) return c.Out(0, OnnxTensor({}, {c.Str("value_string", "")}));
  ONNX_EXPECT(c, c.HasAttr("value_strings"), "has no value");
  std::vector<std::string> values = c.StrsAttr("value_strings");
  c.Out(0, OnnxTensor({static_cast<int64_t>(values.size())}, values));
}

// [N, C, H, W] by way of six axes, transposed.
void ThroughSixAxes(OpCall& c, const Shape& apart, const std::vector<int64_t>& permutation,
                    const Shape& shape) {
  c.Out(0, Permuted(c.In(0).WithShape(apart), permutation).WithShape(shape));
}

void DepthToSpace(OpCall& c) {
  const int64_t b = c.Int("blocksize", 0);
  const Shape& x = c.In(0).shape();
  ONNX_EXPECT(c, x.size() == 4 && b > 0 && x[1] % (b * b) == 0,
              "takes [N, C, H, W] with C a multiple of the block");
  const int64_t depth = x[1] / (b * b);
  const Shape shape = {x[0], depth, x[2] * b, x[3] * b};
  if (c.Str("mode", "DCR") == "DCR")
    return ThroughSixAxes(c, {x[0], b, b, depth, x[2], x[3]}, {0, 3, 4, 1, 5, 2}, shape);
  ThroughSixAxes(c, {x[0], depth, b, b, x[2], x[3]}, {0, 1, 4, 2, 5, 3}, shape);
}

void SpaceToDepth(OpCall& c) {
  const int64_t b = c.Int("blocksize", 0);
  const Shape& x = c.In(0).shape();
  ONNX_EXPECT(c, x.size() == 4 && b > 0 && x[2] % b == 0 && x[3] % b == 0,
              "takes [N, C, H, W] of whole blocks");
  const Shape shape = {x[0], x[1] * b * b, x[2] / b, x[3] / b};
  const bool rows_first = c.Str("mode", "DCR") != "CRD";
  const Shape apart = {x[0], x[1], x[2] / b, b, x[3] / b, b};
  ThroughSixAxes(c, apart,
                 rows_first ? std::vector<int64_t>{0, 3, 5, 1, 2, 4} : std::vector<int64_t>{0, 1, 3, 5, 2, 4},
                 shape);
}

constexpr KernelRow kRows[] = {
    {"Shape", ShapeOf},
    {"Size", Size},
    {"Reshape", Reshape},
    {"Flatten", Flatten},
    {"Squeeze", Squeeze},
    {"Unsqueeze", Unsqueeze},
    {"Transpose", Transpose},
    {"Expand", Expand},
    {"Tile", Tile},
    {"ConstantOfShape", ConstantOfShape},
    {"EyeLike", EyeLike},
    {"Range", Range},
    {"Concat", Concat},
    {"Constant", Constant},
    {"DepthToSpace", DepthToSpace},
    {"SpaceToDepth", SpaceToDepth},
};

}  // namespace

absl::Span<const KernelRow> ShapeKernels() { return kRows; }

}  // namespace twinforge
