// Rules for transpose and reshape: a chain of them is one strided view of what is below.
//
// Whatever such a chain does, it reads its operand in some order of strides, as numpy
// views do. So the chain is turned into that view, the new verb applied to the view, and
// the view written down again in its shortest form, which depends on nothing but the view:
//
//   reshape(base, S)                        the order is the operand's own
//   reshape(transpose(base, P), S)          the operand's axes move whole
//   transpose(reshape(base, S), P)          parts of its axes move, and each becomes an axis
//   reshape(transpose(reshape(base)))       parts move and are merged with others
//
// Hence what a layout wraps on import and wraps again on export vanishes: its view is the
// operand's own order again.
#include <algorithm>
#include <numeric>
#include <optional>

#include "absl/container/inlined_vector.h"
#include "weights/pool.h"
#include "weights/rules.h"

namespace twinforge {
namespace {

struct Dim {
  int64_t extent;
  int64_t stride;  // in elements of the base, row-major
};
using Dims = absl::InlinedVector<Dim, 8>;

struct View {
  WeightPtr base;
  Shape shape;
  Dims dims;  // in the order of the result; none of extent 1; adjacent ones merged where they continue
};

void AppendDim(Dims& dims, Dim dim) {
  if (dim.extent == 1) return;
  if (!dims.empty() && dims.back().stride == dim.stride * dim.extent) {
    dims.back() = {dims.back().extent * dim.extent, dim.stride};
  } else {
    dims.push_back(dim);
  }
}

// The view's dims cut so that each axis of its shape is a list of them; nullopt where an
// axis ends within a dim that does not divide there.
std::optional<std::vector<Dims>> DimsOfAxes(const View& view) {
  std::vector<Dims> axes(view.shape.size());
  size_t next = 0;
  Dim left = view.dims.empty() ? Dim{1, 1} : view.dims[0];
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    for (int64_t need = view.shape[axis]; need > 1;) {
      if (left.extent == 1) left = view.dims[++next];
      if (need % left.extent == 0) {
        axes[axis].push_back(left);
        need /= left.extent;
        left.extent = 1;
      } else if (left.extent % need == 0) {
        left.extent /= need;
        axes[axis].push_back({need, left.stride * left.extent});
        need = 1;
      } else {
        return std::nullopt;
      }
    }
  }
  return axes;
}

bool Permute(View& view, absl::Span<const int64_t> perm) {
  const std::optional<std::vector<Dims>> axes = DimsOfAxes(view);
  if (!axes.has_value()) return false;
  Shape shape;
  view.dims.clear();
  for (int64_t axis : perm) {
    shape.push_back(view.shape[axis]);
    for (const Dim& dim : (*axes)[axis]) AppendDim(view.dims, dim);
  }
  view.shape = std::move(shape);
  return true;
}

View WholeView(const WeightPtr& base, Shape shape) {
  View view{.base = base, .shape = std::move(shape), .dims = {}};
  AppendDim(view.dims, {base->element_count(), 1});
  return view;
}

// The view that `w` is: at most a reshape of a transpose of a reshape of its base.
View ViewOf(const WeightPtr& w) {
  const bool reshaped = w->kind() == WeightKind::kReshape;
  const WeightPtr& below = reshaped ? w->child() : w;
  if (below->kind() != WeightKind::kTranspose) return WholeView(below, w->shape());
  const WeightPtr& operand = below->child();
  const bool split = operand->kind() == WeightKind::kReshape;
  View view = WholeView(split ? operand->child() : operand, operand->shape());
  Permute(view, below->perm());  // always possible: the dims are those of one row-major array
  view.shape = w->shape();
  return view;
}

// ---- writing a view down

bool IsIdentity(absl::Span<const int64_t> perm) {
  for (size_t i = 0; i < perm.size(); ++i) {
    if (perm[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

// Movement passes below casts and arithmetic with constants, and disappears in fills.
bool LetsMovementPass(const WeightPtr& x) {
  return x->kind() == WeightKind::kFill || x->kind() == WeightKind::kCast || IsMapByConstant(x);
}

WeightPtr WriteReshape(const WeightPtr& x, const Shape& shape) {
  if (x->shape() == shape) return x;
  if (LetsMovementPass(x)) return SimpleReshape(x, shape);
  if (x->kind() == WeightKind::kReshape) return WriteReshape(x->child(), shape);
  if (x->kind() == WeightKind::kConcat) {
    if (WeightPtr moved = ReshapeOperands(x, shape)) return moved;
  }
  return WeightPool::Reshape(x, shape);
}

WeightPtr WriteTranspose(const WeightPtr& x, std::vector<int64_t> perm) {
  if (IsIdentity(perm)) return x;
  if (LetsMovementPass(x) || x->kind() == WeightKind::kConcat) return SimpleTranspose(x, std::move(perm));
  return WeightPool::Transpose(x, std::move(perm));
}

// The axes of the base in the order in which the view passes over them; nullopt where the
// view cuts one.
std::optional<std::vector<int64_t>> WholeAxes(const View& view) {
  const Shape& shape = view.base->shape();
  const std::vector<int64_t> strides = Strides(shape);
  std::vector<int64_t> order;
  for (const Dim& dim : view.dims) {
    // The dim's outermost axis comes first and the others follow it.
    int64_t covered = 1;
    const size_t at = order.size();
    for (int64_t i = static_cast<int64_t>(shape.size()) - 1; i >= 0 && covered < dim.extent; --i) {
      if (shape[i] == 1 || strides[i] != dim.stride * covered) continue;
      order.insert(order.begin() + at, i);
      covered *= shape[i];
    }
    if (covered != dim.extent) return std::nullopt;
  }
  return order;
}

// Case "axes move whole": `order` are the base's axes longer than 1.
WeightPtr WriteWhole(const View& view, const std::vector<int64_t>& order) {
  const Shape& in = view.base->shape();
  std::vector<int64_t> ones;
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i] == 1) ones.push_back(static_cast<int64_t>(i));
  }
  // Axes of one element take the places of those in the result, in order, if that makes
  // the reshape needless; else they go first.
  std::vector<int64_t> matched;
  size_t next_one = 0;
  size_t next = 0;
  bool fits = in.size() == view.shape.size();
  for (size_t i = 0; fits && i < view.shape.size(); ++i) {
    if (view.shape[i] == 1) {
      fits = next_one < ones.size();
      if (fits) matched.push_back(ones[next_one++]);
    } else {
      fits = next < order.size() && in[order[next]] == view.shape[i];
      if (fits) matched.push_back(order[next++]);
    }
  }
  if (!fits) {
    matched = ones;
    matched.insert(matched.end(), order.begin(), order.end());
  }
  return WriteReshape(WriteTranspose(view.base, std::move(matched)), view.shape);
}

// Case "each part becomes an axis": `parts` are the dims of the result's axes in order,
// extent 1 included. Reshapes to them in the order of the base, then permutes.
WeightPtr WriteParts(const View& view, const Dims& parts) {
  std::vector<int64_t> order(parts.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&parts](int64_t a, int64_t b) {
    const bool one_a = parts[a].extent == 1;
    const bool one_b = parts[b].extent == 1;
    if (one_a != one_b) return one_a;
    return !one_a && parts[a].stride > parts[b].stride;
  });
  Shape split;
  std::vector<int64_t> perm(parts.size());
  for (size_t i = 0; i < order.size(); ++i) {
    split.push_back(parts[order[i]].extent);
    perm[order[i]] = static_cast<int64_t>(i);
  }
  return WriteTranspose(WriteReshape(view.base, split), std::move(perm));
}

// One dim per axis of the result, or nullopt where an axis merges several.
std::optional<Dims> OneDimPerAxis(const View& view) {
  const std::optional<std::vector<Dims>> axes = DimsOfAxes(view);
  if (!axes.has_value()) return std::nullopt;
  Dims dims;
  for (const Dims& axis : *axes) {
    if (axis.size() > 1) return std::nullopt;
    dims.push_back(axis.empty() ? Dim{1, 1} : axis[0]);
  }
  return dims;
}

bool IsView(const WeightPtr& w) {
  return w->kind() == WeightKind::kTranspose || w->kind() == WeightKind::kReshape;
}

// ---- permutations within one axis

// A permutation of blocks smaller than this, along an axis longer than that, is left to
// transpose, which is good at it: a take would read such an axis element by element.
constexpr int64_t kSmallBlock = 32;
constexpr int64_t kLongAxis = 4096;
// Nor is a take made that needs more runs than this.
constexpr int64_t kMostRuns = 65536;

// Where the view passes over the parts of one axis of its base in another order than they
// lie in, a take of the base puts them in order:
//
//   [64] -> [32, 2] -> transposed [2, 32] -> [64]      is take [0:64:2 1:64:2]
//
// so that rotary permutations written as transposes meet those written as takes, and what
// is left to transpose moves axes against each other.
// Puts the parts of one axis in `dims` in order, and says by which map; nullopt where
// they are, or where a take would be the worse choice.
std::optional<IndexMap> PutInOrder(Dims& dims, int64_t extent, int64_t stride) {
  std::vector<size_t> parts;  // of the axis, in the order of the result
  int64_t covered = 1;
  bool ordered = true;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i].stride < stride || dims[i].stride * dims[i].extent > stride * extent) continue;
    ordered = ordered && (parts.empty() || dims[i].stride < dims[parts.back()].stride);
    covered *= dims[i].extent;
    parts.push_back(i);
  }
  if (ordered || covered != extent) return std::nullopt;
  const Dim last = dims[parts.back()];
  const int64_t block = last.stride == stride ? last.extent * stride : stride;
  if (block < kSmallBlock && extent > kLongAxis) return std::nullopt;
  if (extent / last.extent > kMostRuns) return std::nullopt;
  IndexMap map({Run{.start = 0, .step = 1, .count = 1}});
  int64_t next = stride;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    map = IndexMap::Tile(map, dims[*part].extent, dims[*part].stride / stride);
    dims[*part].stride = next;
    next *= dims[*part].extent;
  }
  return map;
}

// Cuts dims at `strides` (descending) that fall within them, where they divide there.
Dims CutAt(const Dims& dims, absl::Span<const int64_t> strides) {
  Dims cut;
  for (Dim dim : dims) {
    for (int64_t stride : strides) {
      const bool within = dim.stride < stride && stride < dim.stride * dim.extent;
      if (!within || stride % dim.stride != 0 || dim.stride * dim.extent % stride != 0) continue;
      cut.push_back({dim.stride * dim.extent / stride, stride});
      dim.extent = stride / dim.stride;
    }
    cut.push_back(dim);
  }
  return cut;
}

// Whether dims that were one by `dims` are adjacent and continue one another in `cut`.
bool KeepsWhole(const Dims& dims, const Dims& cut) {
  size_t at = 0;
  for (const Dim& dim : dims) {
    for (int64_t covered = cut[at++].extent; covered < dim.extent; covered *= cut[at++].extent) {
      if (cut[at - 1].stride != cut[at].stride * cut[at].extent) return false;
    }
  }
  return true;
}

void PutAxesInOrder(View& view) {
  // Below a concat the operands have been looked at already; below a transpose, which
  // stands here only where views do not compose, nothing would be gained.
  if (view.base->kind() == WeightKind::kConcat || IsView(view.base)) return;
  const Shape shape = view.base->shape();
  const std::vector<int64_t> strides = Strides(shape);
  Dims cut = CutAt(view.dims, strides);
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    Dims ordered = cut;
    std::optional<IndexMap> map = PutInOrder(ordered, shape[axis], strides[axis]);
    // What hangs together with the next axis must not be torn from it: the result's axes,
    // which end wherever they like within one dim, would no longer be movable.
    if (!map.has_value() || !KeepsWhole(view.dims, ordered)) continue;
    view.base = SimpleTake(view.base, static_cast<int64_t>(axis), *std::move(map), 0);
    cut = std::move(ordered);
  }
  const std::vector<Dim> parts(cut.begin(), cut.end());
  view.dims.clear();
  for (const Dim& dim : parts) AppendDim(view.dims, dim);
}

// ---- views of views

// Where the base is a view itself, makes one view of both, unless a dim of the upper one
// ends in the middle of one of the lower.
bool Compose(View& view) {
  const View below = ViewOf(view.base);
  std::vector<int64_t> strides(below.dims.size());  // in elements of view.base
  int64_t stride = 1;
  for (int64_t i = static_cast<int64_t>(strides.size()) - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= below.dims[i].extent;
  }
  const Dims cut = CutAt(view.dims, strides);
  std::vector<Dim> parts;
  for (const Dim& part : cut) {
    for (size_t i = 0; i < strides.size(); ++i) {
      const bool inside =
          part.stride % strides[i] == 0 && part.stride * part.extent <= strides[i] * below.dims[i].extent;
      if (!inside) continue;
      parts.push_back({part.extent, below.dims[i].stride * (part.stride / strides[i])});
      break;
    }
  }
  if (parts.size() != cut.size()) return false;
  view.base = below.base;
  view.dims.clear();
  for (const Dim& part : parts) AppendDim(view.dims, part);
  return true;
}

WeightPtr Write(View view) {
  while (IsView(view.base) && Compose(view)) {
  }
  if (view.dims.size() > 1) PutAxesInOrder(view);
  if (view.dims.size() <= 1) return WriteReshape(view.base, view.shape);
  if (const std::optional<std::vector<int64_t>> order = WholeAxes(view)) return WriteWhole(view, *order);
  if (const std::optional<Dims> parts = OneDimPerAxis(view)) return WriteParts(view, *parts);
  return WriteReshape(WriteParts(view, view.dims), view.shape);
}

}  // namespace

WeightPtr SimpleReshape(const WeightPtr& x, Shape shape) {
  if (x->shape() == shape) return x;
  if (x->kind() == WeightKind::kFill || x->element_count() == 0) {
    return SimpleFill(x->kind() == WeightKind::kFill ? x->fill() : 0, x->dtype(), std::move(shape));
  }
  if (x->kind() == WeightKind::kCast)
    return SimpleCast(SimpleReshape(x->child(), std::move(shape)), x->dtype());
  if (IsMapByConstant(x)) {
    return SimpleMap(x->map_fn(), SimpleReshape(x->child(), std::move(shape)), x->child(1));
  }
  View view = ViewOf(x);
  view.shape = std::move(shape);
  return Write(view);
}

WeightPtr SimpleTranspose(const WeightPtr& x, std::vector<int64_t> perm) {
  if (IsIdentity(perm)) return x;
  if (x->kind() == WeightKind::kFill || x->element_count() == 0) {
    Shape shape;
    for (int64_t axis : perm) shape.push_back(x->shape()[axis]);
    return SimpleFill(x->kind() == WeightKind::kFill ? x->fill() : 0, x->dtype(), std::move(shape));
  }
  if (x->kind() == WeightKind::kCast)
    return SimpleCast(SimpleTranspose(x->child(), std::move(perm)), x->dtype());
  if (IsMapByConstant(x)) {
    return SimpleMap(x->map_fn(), SimpleTranspose(x->child(), std::move(perm)), x->child(1));
  }
  if (x->kind() == WeightKind::kConcat) {
    std::vector<WeightPtr> xs =
        OfEach(x->children(), [&](const WeightPtr& operand) { return SimpleTranspose(operand, perm); });
    const int64_t axis = std::find(perm.begin(), perm.end(), x->axis()) - perm.begin();
    return SimpleConcat(axis, std::move(xs));
  }
  View view = ViewOf(x);
  if (!Permute(view, perm)) {
    // An axis ends in the middle of another's part: a view of the reshape, not of its base.
    view = WholeView(x, x->shape());
    Permute(view, perm);
  }
  return Write(view);
}

}  // namespace twinforge
