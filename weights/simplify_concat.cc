// Rules for concat: operands that continue one another are joined, however deep below
// equal transposes, reshapes and casts they say so; constants become padding of a neighbour.
#include <algorithm>

#include "weights/pool.h"
#include "weights/rules.h"

namespace twinforge {
namespace {

int64_t Product(absl::Span<const int64_t> extents) {
  int64_t product = 1;
  for (int64_t extent : extents) product *= extent;
  return product;
}

// Pieces of one axis joined copy by copy: with 3 copies, a0 a1 a2 and b0 b1 b2 become
// a0 b0 a1 b1 a2 b2. So the heads' parts of a fused tensor find each other again.
constexpr int64_t kMostCopies = 65536;

WeightPtr Join(const WeightPtr& a, const WeightPtr& b, int64_t axis, int64_t copies);

// Places of one operand: the operand's own map, or all of it.
struct Places {
  WeightPtr base;
  IndexMap map;
  double fill;
};

Places PlacesOf(const WeightPtr& x, int64_t axis) {
  if (x->kind() == WeightKind::kTake && x->axis() == axis) return {x->child(), x->map(), x->fill()};
  return {x, IndexMap::Identity(x->shape()[axis]), 0};
}

const WeightPtr& BaseOf(const WeightPtr& x, int64_t axis) {
  return x->kind() == WeightKind::kTake && x->axis() == axis ? x->child() : x;
}

IndexMap JoinMaps(const IndexMap& a, const IndexMap& b, int64_t copies) {
  std::vector<IndexMap> parts;
  const int64_t size_a = a.size() / copies;
  const int64_t size_b = b.size() / copies;
  for (int64_t copy = 0; copy < copies; ++copy) {
    parts.push_back(a.Range(copy * size_a, size_a));
    parts.push_back(b.Range(copy * size_b, size_b));
  }
  return IndexMap::Join(parts);
}

WeightPtr JoinPlaces(const WeightPtr& a, const WeightPtr& b, int64_t axis, int64_t copies) {
  if (BaseOf(a, axis) != BaseOf(b, axis)) return nullptr;
  const Places left = PlacesOf(a, axis);
  const Places right = PlacesOf(b, axis);
  if (left.map.has_fill() && right.map.has_fill() && !SameBits(left.fill, right.fill)) return nullptr;
  return SimpleTake(left.base, axis, JoinMaps(left.map, right.map, copies),
                    left.map.has_fill() ? left.fill : right.fill);
}

// Below two equal reshapes the operands are joined along the axis before which as many
// elements stand, or within which that many are reached: rows of [4, 16] -> [64] stay
// rows, and the middle of [12, 6] -> [3, 4, 6] is three copies of the first.
WeightPtr JoinReshapes(const WeightPtr& a, const WeightPtr& b, int64_t axis, int64_t copies) {
  const Shape& in_a = a->child()->shape();
  const Shape& in_b = b->child()->shape();
  if (in_a.size() != in_b.size()) return nullptr;
  const int64_t before = Product(absl::MakeConstSpan(a->shape()).first(axis)) * copies;
  int64_t in_before = 1;
  for (size_t i = 0; i < in_a.size() && in_before <= before; in_before *= in_a[i++]) {
    const int64_t in_copies = before / in_before;
    if (before % in_before != 0 || in_copies > kMostCopies) continue;
    if (in_a[i] % in_copies != 0 || in_b[i] % in_copies != 0) continue;
    Shape others_a = in_a;
    others_a[i] = in_b[i];
    if (others_a != in_b) continue;
    if (WeightPtr joined = Join(a->child(), b->child(), static_cast<int64_t>(i), in_copies)) {
      Shape shape = a->shape();
      shape[axis] += b->shape()[axis];
      return SimpleReshape(joined, std::move(shape));
    }
  }
  return nullptr;
}

// Two concats along another axis are joined operand by operand, if every pair can be.
WeightPtr JoinConcats(const WeightPtr& a, const WeightPtr& b, int64_t axis, int64_t copies) {
  const int64_t other = a->axis();
  if (other == axis || other != b->axis() || a->children().size() != b->children().size()) return nullptr;
  std::vector<WeightPtr> xs;
  for (size_t i = 0; i < a->children().size(); ++i) {
    if (a->child(i)->shape()[other] != b->child(i)->shape()[other]) return nullptr;
    WeightPtr joined = Join(a->child(i), b->child(i), axis, copies);
    if (joined == nullptr) return nullptr;
    xs.push_back(std::move(joined));
  }
  return SimpleConcat(other, std::move(xs));
}

// One program for `a` and then `b` along `axis`, in each of `copies` parts of that axis,
// if both move pieces of one operand alike.
WeightPtr Join(const WeightPtr& a, const WeightPtr& b, int64_t axis, int64_t copies) {
  if (WeightPtr joined = JoinPlaces(a, b, axis, copies)) return joined;
  if (a->kind() != b->kind() || a->children().empty()) return nullptr;
  const auto join_below = [&](int64_t below) { return Join(a->child(), b->child(), below, copies); };
  WeightPtr joined;
  switch (a->kind()) {
    case WeightKind::kTranspose:
      if (a->perm() != b->perm()) return nullptr;
      joined = join_below(a->perm()[axis]);
      return joined == nullptr ? nullptr : SimpleTranspose(joined, a->perm());
    case WeightKind::kReshape:
      return JoinReshapes(a, b, axis, copies);
    case WeightKind::kTake:
      if (a->axis() == axis || a->axis() != b->axis() || !(a->map() == b->map()) ||
          !SameBits(a->fill(), b->fill())) {
        return nullptr;
      }
      joined = join_below(axis);
      return joined == nullptr ? nullptr : SimpleTake(joined, a->axis(), a->map(), a->fill());
    case WeightKind::kCast:
      if (a->child()->dtype() != b->child()->dtype()) return nullptr;
      joined = join_below(axis);
      return joined == nullptr ? nullptr : SimpleCast(joined, a->dtype());
    case WeightKind::kMap:
      if (!IsMapByConstant(a) || a->map_fn() != b->map_fn() || a->child(1) != b->child(1)) return nullptr;
      joined = join_below(axis);
      return joined == nullptr ? nullptr : SimpleMap(a->map_fn(), joined, a->child(1));
    case WeightKind::kConcat:
      return JoinConcats(a, b, axis, copies);
    case WeightKind::kSource:
    case WeightKind::kStack:
    case WeightKind::kFill:
    case WeightKind::kContract:
    case WeightKind::kStat:
    case WeightKind::kGroup:
      return nullptr;
  }
  return nullptr;
}

WeightPtr PadAfter(const WeightPtr& x, int64_t axis, int64_t count, double fill) {
  const IndexMap parts[] = {IndexMap::Identity(x->shape()[axis]), IndexMap::Fill(count)};
  return SimpleTake(x, axis, IndexMap::Join(parts), fill);
}

WeightPtr PadBefore(const WeightPtr& x, int64_t axis, int64_t count, double fill) {
  const IndexMap parts[] = {IndexMap::Fill(count), IndexMap::Identity(x->shape()[axis])};
  return SimpleTake(x, axis, IndexMap::Join(parts), fill);
}

// Collects operands, each joined to the one before it where possible.
class Operands {
 public:
  explicit Operands(int64_t axis) : axis_(axis) {}

  void Add(WeightPtr x) {
    if (x->shape()[axis_] == 0) return;
    if (x->kind() == WeightKind::kConcat && x->axis() == axis_) {
      for (const WeightPtr& operand : x->children()) Add(operand);
      return;
    }
    if (xs_.empty()) {
      xs_.push_back(std::move(x));
      return;
    }
    // Fill between two operands belongs to the left one.
    const bool leads_with_fill =
        x->kind() == WeightKind::kTake && x->axis() == axis_ && x->map().runs()[0].is_fill();
    if (leads_with_fill) {
      const int64_t count = x->map().runs()[0].count;
      const double fill = x->fill();
      x = SimpleTake(x->child(), axis_, x->map().Range(count, x->map().size() - count), fill);
      Replace(PadAfter(xs_.back(), axis_, count, fill));
      return Add(std::move(x));
    }
    const WeightPtr& last = xs_.back();
    WeightPtr joined;
    if (x->kind() == WeightKind::kFill) {
      joined = PadAfter(last, axis_, x->shape()[axis_], x->fill());
    } else if (last->kind() == WeightKind::kFill) {
      joined = PadBefore(x, axis_, last->shape()[axis_], last->fill());
    } else {
      joined = Join(last, x, axis_, 1);
    }
    if (joined == nullptr) {
      xs_.push_back(std::move(x));
    } else {
      Replace(std::move(joined));
    }
  }

  std::vector<WeightPtr>& xs() { return xs_; }

 private:
  // Puts `x`, which may have become a concat itself, in the place of the last operand.
  void Replace(WeightPtr x) {
    xs_.pop_back();
    if (x->kind() == WeightKind::kConcat && x->axis() == axis_) {
      xs_.insert(xs_.end(), x->children().begin(), x->children().end());
    } else {
      xs_.push_back(std::move(x));
    }
  }

  int64_t axis_;
  std::vector<WeightPtr> xs_;
};

// Casts from one dtype, or one arithmetic with one constant, in all operands alike.
bool SameArithmetic(const std::vector<WeightPtr>& xs) {
  const WeightPtr& first = xs[0];
  return std::all_of(xs.begin(), xs.end(), [&first](const WeightPtr& x) {
    if (x->kind() != first->kind()) return false;
    if (x->kind() == WeightKind::kCast) return x->child()->dtype() == first->child()->dtype();
    return IsMapByConstant(x) && IsMapByConstant(first) && x->map_fn() == first->map_fn() &&
           x->child(1) == first->child(1);
  });
}

}  // namespace

WeightPtr SimpleConcat(int64_t axis, std::vector<WeightPtr> xs) {
  Shape shape = xs[0]->shape();
  const DType dtype = xs[0]->dtype();
  for (size_t i = 1; i < xs.size(); ++i) shape[axis] += xs[i]->shape()[axis];
  if (ElementCount(shape) == 0) return SimpleFill(0, dtype, std::move(shape));
  Operands operands(axis);
  for (WeightPtr& x : xs) operands.Add(std::move(x));
  xs = std::move(operands.xs());
  if (xs.size() == 1) return xs[0];
  if (SameArithmetic(xs)) {
    const WeightPtr first = xs[0];
    for (WeightPtr& x : xs) x = WeightPtr(x->child());
    WeightPtr joined = SimpleConcat(axis, std::move(xs));
    return first->kind() == WeightKind::kCast ? SimpleCast(joined, dtype)
                                              : SimpleMap(first->map_fn(), joined, first->child(1));
  }
  return WeightPool::Concat(axis, std::move(xs));
}

WeightPtr ReshapeOperands(const WeightPtr& concat, const Shape& shape) {
  const int64_t before = Product(absl::MakeConstSpan(concat->shape()).first(concat->axis()));
  int64_t passed = 1;
  for (size_t axis = 0; axis < shape.size() && passed <= before; passed *= shape[axis++]) {
    if (passed != before) continue;
    const int64_t row = before * Product(absl::MakeConstSpan(shape).subspan(axis + 1));
    const bool divides = std::all_of(concat->children().begin(), concat->children().end(),
                                     [row](const WeightPtr& x) { return x->element_count() % row == 0; });
    if (!divides) continue;
    std::vector<WeightPtr> xs;
    for (const WeightPtr& operand : concat->children()) {
      Shape part = shape;
      part[axis] = operand->element_count() / row;
      xs.push_back(SimpleReshape(operand, std::move(part)));
    }
    return SimpleConcat(static_cast<int64_t>(axis), std::move(xs));
  }
  return nullptr;
}

}  // namespace twinforge
