#include "onnx/kernels/places.h"

#include <algorithm>
#include <numeric>

namespace twinforge {

std::optional<Shape> BroadcastShape(const Shape& a, const Shape& b) {
  Shape out(std::max(a.size(), b.size()));
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t back = out.size() - i;
    const int64_t x = back <= a.size() ? a[a.size() - back] : 1;
    const int64_t y = back <= b.size() ? b[b.size() - back] : 1;
    if (x != y && x != 1 && y != 1) return std::nullopt;
    out[i] = x == 1 ? y : x;
  }
  return out;
}

Shape BroadcastInputs(OpCall& c, int first, int last) {
  Shape shape = c.In(first).shape();
  for (int i = first + 1; i <= last; ++i) {
    const std::optional<Shape> both = BroadcastShape(shape, c.In(i).shape());
    if (!both) {
      c.Fail("shapes " + ShapeText(shape) + " and " + ShapeText(c.In(i).shape()) + " do not broadcast");
      return {0};
    }
    shape = *both;
  }
  c.Affordable(shape);
  return shape;
}

bool BroadcastsTo(const Shape& from, const Shape& to) {
  const std::optional<Shape> both = BroadcastShape(from, to);
  return both && *both == to;
}

std::vector<int64_t> StridedPlaces(const Shape& shape, const std::vector<int64_t>& strides, int64_t offset) {
  const int64_t count = ElementCount(shape);
  std::vector<int64_t> places(static_cast<size_t>(count));
  std::vector<int64_t> index(shape.size());
  int64_t at = offset;
  for (int64_t k = 0; k < count; ++k) {
    places[k] = at;
    for (size_t d = shape.size(); d-- > 0;) {
      at += strides[d];
      if (++index[d] < shape[d]) break;
      at -= strides[d] * shape[d];
      index[d] = 0;
    }
  }
  return places;
}

std::vector<int64_t> BroadcastPlaces(const Shape& from, const Shape& to) {
  if (from == to) return Counted(ElementCount(to));
  const std::vector<int64_t> own = Strides(from);
  std::vector<int64_t> strides(to.size(), 0);
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] != 1) strides[to.size() - from.size() + i] = own[i];
  }
  return StridedPlaces(to, strides, 0);
}

bool NextPlace(const Shape& shape, std::vector<int64_t>& index) {
  for (size_t d = shape.size(); d-- > 0;) {
    if (++index[d] < shape[d]) return true;
    index[d] = 0;
  }
  return false;
}

AxisView ViewAt(const Shape& shape, int64_t axis) {
  AxisView view;
  for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d) {
    (d < axis ? view.outer : d == axis ? view.size : view.inner) *= shape[d];
  }
  return view;
}

OnnxTensor Permuted(const OnnxTensor& x, const std::vector<int64_t>& permutation) {
  const std::vector<int64_t> own = Strides(x.shape());
  Shape shape;
  std::vector<int64_t> strides;
  for (const int64_t axis : permutation) {
    shape.push_back(x.dim(axis));
    strides.push_back(own[axis]);
  }
  return TakeElements(x, shape, StridedPlaces(shape, strides, 0));
}

OnnxTensor Joined(OpCall& c, const std::vector<OnnxTensor>& parts, int64_t given) {
  if (parts.empty() || parts[0].rank() == 0) c.Fail("joins nothing, or scalars");
  const int64_t axis = c.ok() ? c.Axis(given, parts[0].rank()) : 0;
  if (!c.ok()) return {};
  Shape shape = parts[0].shape();
  shape[axis] = 0;
  for (const OnnxTensor& part : parts) {
    Shape other = part.shape();
    if (other.size() == shape.size()) {
      shape[axis] += other[axis];
      other[axis] = shape[axis];
    }
    if (other != shape || part.type() != parts[0].type())
      c.Fail("what is joined differs in type or in another axis");
    if (!c.ok()) return {};
  }
  if (!c.Affordable(shape)) return {};
  std::vector<int32_t> which;
  std::vector<int64_t> from;
  const int64_t outer = ViewAt(shape, axis).outer;
  for (int64_t o = 0; o < outer; ++o) {
    for (size_t i = 0; i < parts.size(); ++i) {
      const int64_t block = parts[i].count() / outer;
      which.insert(which.end(), static_cast<size_t>(block), static_cast<int32_t>(i));
      for (int64_t k = 0; k < block; ++k) from.push_back(o * block + k);
    }
  }
  return TakeElements(parts, shape, which, from);
}

std::vector<int64_t> NormalAxes(OpCall& c, const std::vector<int64_t>& axes, int64_t rank) {
  std::vector<int64_t> normal;
  for (const int64_t axis : axes) normal.push_back(c.Axis(axis, rank));
  std::sort(normal.begin(), normal.end());
  if (std::adjacent_find(normal.begin(), normal.end()) != normal.end()) c.Fail("names an axis twice");
  return normal;
}

std::vector<int64_t> Counted(int64_t count) {
  std::vector<int64_t> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), int64_t{0});
  return all;
}

}  // namespace twinforge
