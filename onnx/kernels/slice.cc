// Parts of a tensor, and a tensor as part of a larger one.
#include <algorithm>

#include "onnx/kernels/kernel.h"
#include "onnx/kernels/places.h"
#include "onnx/tensor.h"

namespace twinforge {
namespace {

constexpr int64_t kMost = int64_t{1} << 40;  // of padding: no sum overflows

// Starts, ends, axes and steps are inputs since operator set 10, attributes before.
struct SliceSpec {
  std::vector<int64_t> starts, ends, axes, steps;
};

SliceSpec SpecOf(OpCall& c) {
  SliceSpec spec;
  const bool inputs = c.opset() >= 10;
  if (inputs && (!c.Has(1) || !c.Has(2))) {
    c.Fail("has no starts or no ends");
    return spec;
  }
  spec.starts = inputs ? c.Ints(1) : c.IntsAttr("starts");
  spec.ends = inputs ? c.Ints(2) : c.IntsAttr("ends");
  spec.axes = inputs && c.Has(3) ? c.Ints(3)
              : inputs           ? Counted(static_cast<int64_t>(spec.starts.size()))
                                 : c.IntsAttr("axes", Counted(static_cast<int64_t>(spec.starts.size())));
  spec.steps = inputs && c.Has(4) ? c.Ints(4) : std::vector<int64_t>(spec.starts.size(), 1);
  return spec;
}

void Slice(OpCall& c) {
  const SliceSpec spec = SpecOf(c);
  const OnnxTensor& x = c.In(0);
  ONNX_EXPECT(c,
              spec.starts.size() == spec.ends.size() && spec.starts.size() == spec.axes.size() &&
                  spec.starts.size() == spec.steps.size(),
              "starts, ends, axes and steps are not of one length");
  NormalAxes(c, spec.axes, x.rank());
  ONNX_EXPECT(c, true, "");
  Shape shape = x.shape();
  std::vector<int64_t> strides = Strides(x.shape());
  int64_t offset = 0;
  for (size_t i = 0; i < spec.axes.size(); ++i) {
    const int64_t axis = c.Axis(spec.axes[i], x.rank()), size = x.dim(axis), step = spec.steps[i];
    ONNX_EXPECT(c, step != 0 && step != INT64_MIN, "a step is 0");
    const auto bound = [&](int64_t at, int64_t low, int64_t high) {
      return std::clamp(at < 0 ? std::max(at, -size - 1) + size : at, low, high);
    };
    const int64_t start =
        step > 0 ? bound(spec.starts[i], 0, size) : bound(spec.starts[i], 0, size - 1 < 0 ? 0 : size - 1);
    const int64_t end =
        step > 0 ? bound(spec.ends[i], 0, size) : bound(spec.ends[i], -1, size - 1 < -1 ? -1 : size - 1);
    const int64_t distance = step > 0 ? end - start : start - end, stride = step > 0 ? step : -step;
    shape[axis] = distance <= 0 || size == 0 ? 0 : (distance - 1) / stride + 1;
    offset += start * strides[axis];
    strides[axis] = shape[axis] <= 1 ? 0 : strides[axis] * step;
  }
  c.Out(0, TakeElements(x, shape, StridedPlaces(shape, strides, offset)));
}

OnnxTensor PartAlong(const OnnxTensor& x, int64_t axis, int64_t start, int64_t size) {
  Shape shape = x.shape();
  shape[axis] = size;
  const std::vector<int64_t> strides = Strides(x.shape());
  return TakeElements(x, shape, StridedPlaces(shape, strides, start * strides[axis]));
}

// How Split and SplitToSequence divide an axis: given sizes, or equal parts of which the last may be smaller.
std::vector<int64_t> EqualParts(int64_t size, int64_t part) {
  std::vector<int64_t> sizes;
  for (int64_t done = 0; done < size; done += part) sizes.push_back(std::min(part, size - done));
  return sizes;
}

void Split(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  ONNX_EXPECT(c, x.rank() > 0, "splits a scalar");
  const int64_t axis = c.Axis(c.Int("axis", 0), x.rank()), size = x.dim(axis), outputs = c.outputs();
  std::vector<int64_t> sizes = c.Has(1) ? c.Ints(1) : c.IntsAttr("split");
  if (sizes.empty() && size > 0 && outputs > 0) {
    ONNX_EXPECT(c, c.Int("num_outputs", outputs) == outputs, "num_outputs is not the number of outputs");
    sizes = EqualParts(size, (size + outputs - 1) / outputs);
    sizes.resize(static_cast<size_t>(outputs), 0);
  }
  if (sizes.empty()) sizes.resize(static_cast<size_t>(outputs), 0);
  ONNX_EXPECT(c, static_cast<int64_t>(sizes.size()) == outputs, "has another number of parts than outputs");
  int64_t start = 0;
  for (const int64_t part : sizes) {
    ONNX_EXPECT(c, part >= 0 && part <= size - start, "the parts are more than the axis");
    start += part;
  }
  ONNX_EXPECT(c, start == size, "the parts are less than the axis");
  start = 0;
  for (int64_t i = 0; i < outputs; ++i) {
    c.Out(static_cast<int>(i), PartAlong(x, axis, start, sizes[i]));
    start += sizes[i];
  }
}

void SplitToSequence(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  ONNX_EXPECT(c, x.rank() > 0, "splits a scalar");
  const int64_t axis = c.Axis(c.Int("axis", 0), x.rank());
  ONNX_EXPECT(c, true, "");
  const int64_t size = x.dim(axis);
  const bool scalar = c.Has(1) && c.In(1).rank() == 0;
  std::vector<int64_t> sizes = c.Has(1) ? c.Ints(1) : std::vector<int64_t>{1};
  ONNX_EXPECT(c, true, "");
  if (!c.Has(1) || scalar) {
    ONNX_EXPECT(c, sizes[0] > 0, "splits into parts of nothing");
    sizes = EqualParts(size, sizes[0]);
  }
  std::vector<OnnxValue> parts;
  int64_t start = 0;
  for (const int64_t part : sizes) {
    ONNX_EXPECT(c, part >= 0 && part <= size - start, "the parts are more than the axis");
    OnnxTensor piece = PartAlong(x, axis, start, part);
    start += part;
    if (!c.Has(1) && c.Int("keepdims", 1) == 0) {
      Shape shape = piece.shape();
      shape.erase(shape.begin() + axis);
      piece = piece.WithShape(shape);
    }
    parts.push_back(std::move(piece));
  }
  ONNX_EXPECT(c, start == size, "the parts are less than the axis");
  c.Out(0, OnnxValue::Sequence(std::move(parts)));
}

// The place inside [0, size) that stands for `at`, by the mode of padding; -1 for the constant.
int64_t PaddedFrom(int64_t at, int64_t size, const std::string& mode) {
  if (at >= 0 && at < size) return at;
  if (mode == "edge") return std::clamp<int64_t>(at, 0, size - 1);
  if (mode == "wrap") return ((at % size) + size) % size;
  if (mode != "reflect") return -1;
  if (size == 1) return 0;
  const int64_t period = 2 * (size - 1);
  const int64_t in = ((at % period) + period) % period;
  return in < size ? in : period - in;
}

void Pad(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  const int64_t rank = x.rank();
  const std::string mode = c.Str("mode", "constant");
  const bool inputs = c.opset() >= 11;
  ONNX_EXPECT(c, !inputs || c.Has(1), "has no pads");
  const std::vector<int64_t> given = inputs ? c.Ints(1) : c.IntsAttr(c.opset() < 2 ? "paddings" : "pads");
  const std::vector<int64_t> axes = inputs && c.Has(3) ? c.Ints(3) : Counted(rank);
  NormalAxes(c, axes, rank);
  ONNX_EXPECT(c, given.size() == 2 * axes.size(), "pads are not two for each axis");
  ONNX_EXPECT(c, mode == "constant" || mode == "edge" || mode == "wrap" || mode == "reflect",
              "knows no such mode");
  std::vector<int64_t> low(static_cast<size_t>(rank), 0);
  Shape shape = x.shape();
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t axis = c.Axis(axes[i], rank), high = given[axes.size() + i];
    low[axis] = given[i];
    ONNX_EXPECT(c, std::abs(given[i]) <= kMost && std::abs(high) <= kMost, "pads too much");
    shape[axis] += given[i] + high;
    ONNX_EXPECT(c, mode == "constant" || x.dim(axis) > 0, "has nothing to repeat");
  }
  ONNX_EXPECT(c, c.Affordable(shape), "");
  OnnxTensor fill = TakeElements(x, {1}, std::vector<int64_t>{-1});  // zero, or ""
  if (inputs && c.Has(2)) fill = c.In(2);
  if (!inputs && c.HasAttr("value")) fill = ScalarOf(x.type(), c.Float("value", 0));
  ONNX_EXPECT(c, fill.count() == 1 && fill.type() == x.type(), "its constant is no scalar of the type");
  const std::vector<int64_t> strides = Strides(x.shape());
  std::vector<int64_t> from(static_cast<size_t>(ElementCount(shape))), index(shape.size());
  std::vector<int32_t> which(from.size(), 0);
  for (size_t k = 0; k < from.size(); ++k) {
    int64_t at = 0;
    bool outside = false;
    for (size_t d = 0; d < shape.size(); ++d) {
      const int64_t i = PaddedFrom(index[d] - low[d], x.shape()[d], mode);
      outside = outside || i < 0;
      at += i * strides[d];
    }
    which[k] = outside ? 1 : 0;
    from[k] = outside ? 0 : at;
    NextPlace(shape, index);
  }
  c.Out(0, TakeElements({x, fill}, shape, which, from));
}

void Trilu(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  ONNX_EXPECT(c, x.rank() >= 2, "takes matrices");
  const int64_t k = c.IntScalar(1, 0);
  ONNX_EXPECT(c, true, "");
  const bool upper = c.Int("upper", 1) != 0;
  const int64_t rows = x.dim(x.rank() - 2), columns = x.dim(x.rank() - 1);
  std::vector<int64_t> from = Counted(x.count());
  for (int64_t p = 0; p < x.count(); ++p) {
    const int64_t j = p % columns, i = p / columns % rows;
    // j - i and k are compared without adding, which could overflow.
    if (upper ? j - i < k : j - i > k) from[p] = -1;
  }
  c.Out(0, TakeElements(x, x.shape(), from));
}

void CenterCropPad(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  const std::vector<int64_t> target = c.Ints(1);
  const std::vector<int64_t> axes = c.IntsAttr("axes", Counted(x.rank()));
  NormalAxes(c, axes, x.rank());
  ONNX_EXPECT(c, target.size() == axes.size(), "its shape is not one extent for each axis");
  Shape shape = x.shape();
  std::vector<int64_t> low(shape.size(), 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t axis = c.Axis(axes[i], x.rank()), have = x.dim(axis);
    ONNX_EXPECT(c, target[i] >= 0, "asks for a negative extent");
    shape[axis] = target[i];
    low[axis] = target[i] > have ? (target[i] - have) / 2 : -((have - target[i]) / 2);
  }
  ONNX_EXPECT(c, c.Affordable(shape), "");
  const std::vector<int64_t> strides = Strides(x.shape());
  std::vector<int64_t> from(static_cast<size_t>(ElementCount(shape))), index(shape.size());
  for (int64_t& at : from) {
    at = 0;
    for (size_t d = 0; d < shape.size() && at >= 0; ++d) {
      const int64_t i = index[d] - low[d];
      at = i < 0 || i >= x.shape()[d] ? -1 : at + i * strides[d];
    }
    NextPlace(shape, index);
  }
  c.Out(0, TakeElements(x, shape, from));
}

void Compress(OpCall& c) {
  const bool flat = !c.HasAttr("axis");
  const OnnxTensor x = flat ? c.In(0).WithShape({c.In(0).count()}) : c.In(0);
  const std::vector<int64_t> condition = c.Ints(1);
  const int64_t axis = c.Axis(c.Int("axis", 0), x.rank());
  ONNX_EXPECT(c, c.In(1).rank() == 1, "the condition has more than one axis");
  std::vector<int64_t> kept;
  for (size_t i = 0; i < condition.size(); ++i) {
    if (condition[i] == 0) continue;
    ONNX_EXPECT(c, static_cast<int64_t>(i) < x.dim(axis), "the condition is longer than the axis");
    kept.push_back(static_cast<int64_t>(i));
  }
  Shape shape = x.shape();
  shape[axis] = static_cast<int64_t>(kept.size());
  const AxisView view = ViewAt(x.shape(), axis);
  std::vector<int64_t> from;
  for (int64_t o = 0; o < view.outer; ++o) {
    for (const int64_t i : kept) {
      for (int64_t n = 0; n < view.inner; ++n) from.push_back((o * view.size + i) * view.inner + n);
    }
  }
  c.Out(0, TakeElements(x, shape, from));
}

void ReverseSequence(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  const int64_t batch = c.Int("batch_axis", 1), time = c.Int("time_axis", 0);
  const std::vector<int64_t> lengths = c.Ints(1);
  ONNX_EXPECT(c, x.rank() >= 2 && batch + time == 1 && batch * time == 0, "its axes are not 0 and 1");
  ONNX_EXPECT(c, static_cast<int64_t>(lengths.size()) == x.dim(batch),
              "lengths are not one for each of the batch");
  const std::vector<int64_t> strides = Strides(x.shape());
  std::vector<int64_t> from = Counted(x.count()), index(x.shape().size());
  for (int64_t& at : from) {
    const int64_t length = lengths[index[batch]], t = index[time];
    ONNX_EXPECT(c, length >= 0 && length <= x.dim(time), "a length is more than the axis");
    if (t < length) at += (length - 1 - 2 * t) * strides[time];
    NextPlace(x.shape(), index);
  }
  c.Out(0, TakeElements(x, x.shape(), from));
}

constexpr KernelRow kRows[] = {
    {"Slice", Slice},
    {"Split", Split},
    {"SplitToSequence", SplitToSequence},
    {"Pad", Pad},
    {"Trilu", Trilu},
    {"Compress", Compress},
    {"CenterCropPad", CenterCropPad},
    {"ReverseSequence", ReverseSequence},
};

}  // namespace

absl::Span<const KernelRow> SliceKernels() { return kRows; }

}  // namespace twinforge
