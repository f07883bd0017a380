#include "weights/simplify.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/parallel.h"
#include "weights/pool.h"
#include "weights/rules.h"

namespace twinforge {

std::vector<WeightPtr> OfEach(absl::Span<const WeightPtr> xs,
                              absl::FunctionRef<WeightPtr(const WeightPtr&)> rule) {
  constexpr int64_t kWorthAThread = 32;
  std::vector<WeightPtr> results(xs.size());
  ParallelFor(static_cast<int64_t>(xs.size()), kWorthAThread, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) results[i] = rule(xs[i]);
  });
  return results;
}

bool IsMapByConstant(const WeightPtr& w) {
  return w->kind() == WeightKind::kMap && w->child(1)->kind() == WeightKind::kFill &&
         w->child(1)->rank() == 0;
}

double ApplyMap(MapFn fn, double x, double y) {
  switch (fn) {
    case MapFn::kAdd:
      return x + y;
    case MapFn::kSub:
      return x - y;
    case MapFn::kMul:
      return x * y;
    case MapFn::kDiv:
      return x / y;
  }
  return 0;
}

WeightPtr SimpleFill(double value, DType dtype, Shape shape) {
  // Where there is no element, no value is told from another.
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  return WeightPool::Fill(empty ? 0 : value, dtype, std::move(shape));
}

WeightPtr SimpleCast(const WeightPtr& x, DType dtype) {
  if (x->dtype() == dtype) return x;
  if (x->kind() == WeightKind::kFill) return SimpleFill(x->fill(), dtype, x->shape());
  if (x->element_count() == 0) return SimpleFill(0, dtype, x->shape());
  if (x->kind() == WeightKind::kCast && IsLossless(x->child()->dtype(), x->dtype())) {
    // A stored bool is any byte and a computed one is 0 or 1, so bool, u8, bool is no copy.
    const bool launders_bool = x->child()->dtype() == DType::kBool && dtype == DType::kBool;
    if (!launders_bool) return SimpleCast(x->child(), dtype);
  }
  return WeightPool::Cast(x, dtype);
}

WeightPtr SimpleMap(MapFn fn, const WeightPtr& x, const WeightPtr& y) {
  if (x->element_count() == 0) return SimpleFill(0, x->dtype(), x->shape());
  if (y->kind() != WeightKind::kFill) return WeightPool::Map(fn, x, y);
  if (x->kind() == WeightKind::kFill) {
    // Which NaN comes out of arithmetic is the machine's affair, so it is left to the reader.
    const double value = RoundTo(x->dtype(), ApplyMap(fn, x->fill(), y->fill()));
    if (value == value) return SimpleFill(value, x->dtype(), x->shape());
  }
  return WeightPool::Map(fn, x, WeightPool::Fill(y->fill(), DType::kF64, {}));
}

WeightPtr SimpleContract(const WeightPtr& a, const WeightPtr& b) { return WeightPool::Contract(a, b); }

WeightPtr SimpleStat(StatKind kind, const WeightPtr& x, std::vector<int64_t> axes) {
  return WeightPool::Stat(kind, x, std::move(axes));
}

WeightPtr SimpleGroup(GroupFn fn, const WeightPtr& x, int64_t axis, int64_t size, int64_t keep,
                      DType target) {
  return WeightPool::Group(fn, x, axis, size, keep, target);
}

namespace {

// Makes a program anew from its leaves, each node once.
class Rebuilder {
 public:
  explicit Rebuilder(const Bindings* bindings) : bindings_(bindings) {}

  WeightPtr operator()(const WeightPtr& w) {
    const auto found = done_.find(w.get());
    if (found != done_.end()) return found->second;
    std::vector<WeightPtr> xs;
    xs.reserve(w->children().size());
    for (const WeightPtr& child : w->children()) xs.push_back((*this)(child));
    WeightPtr made = Make(w, std::move(xs));
    done_.emplace(w.get(), made);
    return made;
  }

 private:
  WeightPtr Make(const WeightPtr& w, std::vector<WeightPtr> xs) const {
    switch (w->kind()) {
      case WeightKind::kSource:
        return Bound(w);
      case WeightKind::kStack:
        return BoundStack(w);
      case WeightKind::kFill:
        return SimpleFill(w->fill(), w->dtype(), w->shape());
      case WeightKind::kTake:
        return SimpleTake(xs[0], w->axis(), w->map(), w->fill());
      case WeightKind::kTranspose:
        return SimpleTranspose(xs[0], w->perm());
      case WeightKind::kReshape:
        return SimpleReshape(xs[0], w->shape());
      case WeightKind::kConcat:
        return SimpleConcat(w->axis(), std::move(xs));
      case WeightKind::kCast:
        return SimpleCast(xs[0], w->dtype());
      case WeightKind::kMap:
        return SimpleMap(w->map_fn(), xs[0], xs[1]);
      case WeightKind::kContract:
        return SimpleContract(xs[0], xs[1]);
      case WeightKind::kStat:
        return SimpleStat(w->stat_kind(), xs[0], w->axes());
      case WeightKind::kGroup:
        return SimpleGroup(w->group_fn(), xs[0], w->axis(), w->group_size(), w->keep(), w->group_target());
    }
    return nullptr;
  }

  WeightPtr Bound(const WeightPtr& source) const {
    if (bindings_ == nullptr) return source;
    const auto found = std::lower_bound(bindings_->begin(), bindings_->end(), source->source_name(),
                                        [](const std::pair<std::string, WeightPtr>& binding,
                                           const std::string& name) { return binding.first < name; });
    if (found == bindings_->end() || found->first != source->source_name()) return source;
    TWIN_CHECK(found->second->dtype() == source->dtype() && found->second->shape() == source->shape(),
               absl::StrCat("a binding changes the type of ", source->source_name()));
    return found->second;
  }

  // A stack of which no member is bound stays one.
  WeightPtr BoundStack(const WeightPtr& stack) const {
    if (bindings_ == nullptr) return stack;
    bool any = false;
    std::vector<WeightPtr> members;
    for (int64_t i = 0; i < stack->shape()[0]; ++i) {
      const WeightPtr member = StackMember(*stack, i);
      WeightPtr bound = Bound(member);
      any = any || bound != member;
      Shape shape = stack->shape();
      shape[0] = 1;
      members.push_back(SimpleReshape(bound, std::move(shape)));
    }
    return any ? SimpleConcat(0, std::move(members)) : stack;
  }

  const Bindings* bindings_;
  absl::flat_hash_map<const Weight*, WeightPtr> done_;
};

}  // namespace

WeightPtr Simplify(const WeightPtr& w) { return Rebuilder(nullptr)(w); }

WeightPtr Substitute(const WeightPtr& w, const Bindings& bindings) { return Rebuilder(&bindings)(w); }

}  // namespace twinforge
