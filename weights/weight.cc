#include "weights/weight.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <mutex>
#include <set>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "weights/pool.h"
#include "xxhash.h"

namespace twinforge {
namespace {

// ---- the pool
//
// A set of weak entries in shards, each behind a lock of its own. An entry leaves when
// its weight dies: the destructor takes it out under the lock before any field goes, so
// whoever holds the lock may look at any entry's weight.

struct Entry {
  const Weight* weight;
  std::weak_ptr<const Weight> owner;
};

bool SameBytes(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

bool Equal(const Weight& a, const Weight& b) {
  return a.hash() == b.hash() && a.kind() == b.kind() && a.dtype() == b.dtype() && a.shape() == b.shape() &&
         a.axis() == b.axis() && a.group_size() == b.group_size() && a.keep() == b.keep() &&
         a.group_target() == b.group_target() && a.group_fn() == b.group_fn() &&
         SameBytes(a.fill(), b.fill()) && a.perm() == b.perm() && a.children() == b.children() &&
         a.map() == b.map() && a.source_name() == b.source_name();
}

struct EntryHash {
  using is_transparent = void;
  size_t operator()(const Entry& entry) const { return entry.weight->hash(); }
  size_t operator()(const Weight* weight) const { return weight->hash(); }
};

struct EntryEqual {
  using is_transparent = void;
  bool operator()(const Entry& a, const Entry& b) const { return Equal(*a.weight, *b.weight); }
  bool operator()(const Entry& a, const Weight* b) const { return Equal(*a.weight, *b); }
};

struct Shard {
  std::mutex mutex;  // guards entries
  absl::flat_hash_set<Entry, EntryHash, EntryEqual> entries;
};

constexpr int kShards = 16;

// Never destroyed: weights in other static objects may outlive any order of destruction.
Shard& ShardOf(uint64_t hash) {
  static Shard* const shards = new Shard[kShards];
  return shards[hash >> 60];
}

// ---- the hash, over a little-endian text of the fields

class Hasher {
 public:
  void Add(int64_t value) { Append(&value, sizeof(value)); }
  void Add(double value) { Append(&value, sizeof(value)); }
  void Add(absl::Span<const int64_t> values) {
    Add(static_cast<int64_t>(values.size()));
    Append(values.data(), values.size() * sizeof(int64_t));
  }
  void Add(const std::string& text) {
    Add(static_cast<int64_t>(text.size()));
    Append(text.data(), text.size());
  }
  void Add(const IndexMap& map) {
    static_assert(sizeof(Run) == 3 * sizeof(int64_t));
    Add(static_cast<int64_t>(map.runs().size()));
    Append(map.runs().data(), map.runs().size() * sizeof(Run));
  }
  uint64_t Finish() const { return XXH3_64bits_withSeed(buffer_, used_, carried_); }

 private:
  void Append(const void* data, size_t size) {
    if (size == 0) return;
    if (used_ + size > sizeof(buffer_)) {
      carried_ = Finish();
      used_ = 0;
    }
    if (size > sizeof(buffer_)) {
      carried_ = XXH3_64bits_withSeed(data, size, carried_);
      return;
    }
    std::memcpy(buffer_ + used_, data, size);
    used_ += size;
  }

  char buffer_[512];
  size_t used_ = 0;
  uint64_t carried_ = 0;
};

}  // namespace

struct WeightPool::Made : Weight {
  explicit Made(Weight&& w) : Weight(std::move(w)) {}
};

Weight::~Weight() {
  if (!pooled_) return;
  Shard& shard = ShardOf(hash_);
  std::weak_ptr<const Weight> last;  // outlives the lock
  std::lock_guard lock(shard.mutex);
  const auto found = shard.entries.find(static_cast<const Weight*>(this));
  // An equal weight may have been made since the last owner let go of this one.
  if (found == shard.entries.end() || found->weight != this) return;
  last = std::move(const_cast<Entry&>(*found).owner);
  shard.entries.erase(found);
}

WeightPtr WeightPool::Intern(Weight&& w) {
  w.element_count_ = ElementCount(w.shape_);
  Hasher hasher;
  hasher.Add(static_cast<int64_t>(w.kind_) | static_cast<int64_t>(w.dtype_) << 8 |
             static_cast<int64_t>(w.target_) << 16 | static_cast<int64_t>(w.fn_) << 24);
  hasher.Add(w.axis_);
  hasher.Add(w.size_);
  hasher.Add(w.keep_);
  hasher.Add(w.fill_);
  hasher.Add(w.shape_);
  hasher.Add(w.list_);
  hasher.Add(w.map_);
  hasher.Add(w.name_);
  for (const WeightPtr& child : w.children_) hasher.Add(static_cast<int64_t>(child->hash()));
  w.hash_ = hasher.Finish();

  Shard& shard = ShardOf(w.hash_);
  std::lock_guard lock(shard.mutex);
  const auto found = shard.entries.find(&w);
  if (found != shard.entries.end()) {
    if (WeightPtr alive = found->owner.lock()) return alive;
    shard.entries.erase(found);  // its last owner has let go, and waits for our lock
  }
  const std::shared_ptr<Weight> made = std::make_shared<Made>(std::move(w));
  made->pooled_ = true;
  shard.entries.insert({made.get(), made});
  return made;
}

int64_t WeightPool::LiveCount() {
  int64_t count = 0;
  for (uint64_t i = 0; i < kShards; ++i) {
    Shard& shard = ShardOf(i << 60);
    std::lock_guard lock(shard.mutex);
    count += static_cast<int64_t>(shard.entries.size());
  }
  return count;
}

// ---- makers

WeightPtr WeightPool::Source(absl::string_view tensor, DType dtype, Shape shape) {
  Weight w;
  w.kind_ = WeightKind::kSource;
  w.dtype_ = dtype;
  w.name_ = std::string(tensor);
  w.shape_ = std::move(shape);
  return Intern(std::move(w));
}

WeightPtr WeightPool::Stack(absl::string_view prefix, int64_t first, int64_t count, absl::string_view suffix,
                            DType dtype, absl::Span<const int64_t> member) {
  Weight w;
  w.kind_ = WeightKind::kStack;
  w.dtype_ = dtype;
  w.name_ = absl::StrCat(prefix, suffix);
  w.keep_ = static_cast<int64_t>(prefix.size());
  w.axis_ = first;
  w.shape_.reserve(member.size() + 1);
  w.shape_.push_back(count);
  w.shape_.insert(w.shape_.end(), member.begin(), member.end());
  return Intern(std::move(w));
}

WeightPtr WeightPool::Fill(double value, DType dtype, Shape shape) {
  Weight w;
  w.kind_ = WeightKind::kFill;
  w.dtype_ = dtype;
  w.fill_ = RoundTo(dtype, value);
  w.shape_ = std::move(shape);
  return Intern(std::move(w));
}

WeightPtr WeightPool::Take(WeightPtr x, int64_t axis, IndexMap map, double fill) {
  Weight w;
  w.kind_ = WeightKind::kTake;
  w.dtype_ = x->dtype();
  w.axis_ = axis;
  w.shape_ = x->shape();
  w.shape_[axis] = map.size();
  w.fill_ = map.has_fill() ? RoundTo(w.dtype_, fill) : 0;
  w.map_ = std::move(map);
  w.children_.push_back(std::move(x));
  return Intern(std::move(w));
}

WeightPtr WeightPool::Transpose(WeightPtr x, std::vector<int64_t> perm) {
  Weight w;
  w.kind_ = WeightKind::kTranspose;
  w.dtype_ = x->dtype();
  w.shape_.reserve(perm.size());
  for (int64_t axis : perm) w.shape_.push_back(x->shape()[axis]);
  w.list_ = std::move(perm);
  w.children_.push_back(std::move(x));
  return Intern(std::move(w));
}

WeightPtr WeightPool::Reshape(WeightPtr x, Shape shape) {
  Weight w;
  w.kind_ = WeightKind::kReshape;
  w.dtype_ = x->dtype();
  w.shape_ = std::move(shape);
  w.children_.push_back(std::move(x));
  return Intern(std::move(w));
}

WeightPtr WeightPool::Concat(int64_t axis, std::vector<WeightPtr> xs) {
  Weight w;
  w.kind_ = WeightKind::kConcat;
  w.dtype_ = xs[0]->dtype();
  w.axis_ = axis;
  w.shape_ = xs[0]->shape();
  w.shape_[axis] = 0;
  for (const WeightPtr& x : xs) w.shape_[axis] += x->shape()[axis];
  w.children_ = std::move(xs);
  return Intern(std::move(w));
}

WeightPtr WeightPool::Cast(WeightPtr x, DType dtype) {
  Weight w;
  w.kind_ = WeightKind::kCast;
  w.dtype_ = dtype;
  w.shape_ = x->shape();
  w.children_.push_back(std::move(x));
  return Intern(std::move(w));
}

WeightPtr WeightPool::Map(MapFn fn, WeightPtr x, WeightPtr y) {
  Weight w;
  w.kind_ = WeightKind::kMap;
  w.dtype_ = x->dtype();
  w.fn_ = static_cast<uint8_t>(fn);
  w.shape_ = x->shape();
  w.children_ = {std::move(x), std::move(y)};
  return Intern(std::move(w));
}

WeightPtr WeightPool::Contract(WeightPtr a, WeightPtr b) {
  Weight w;
  w.kind_ = WeightKind::kContract;
  w.dtype_ = a->dtype();
  w.shape_ = a->shape();
  w.shape_.back() = b->shape().back();
  w.children_ = {std::move(a), std::move(b)};
  return Intern(std::move(w));
}

WeightPtr WeightPool::Stat(StatKind kind, WeightPtr x, std::vector<int64_t> axes) {
  Weight w;
  w.kind_ = WeightKind::kStat;
  w.dtype_ = DType::kF64;
  w.fn_ = static_cast<uint8_t>(kind);
  w.shape_ = x->shape();
  for (int64_t axis : axes) w.shape_[axis] = 1;
  w.list_ = std::move(axes);
  w.children_.push_back(std::move(x));
  return Intern(std::move(w));
}

WeightPtr WeightPool::Group(GroupFn fn, WeightPtr x, int64_t axis, int64_t size, int64_t keep, DType target) {
  Weight w;
  w.kind_ = WeightKind::kGroup;
  w.fn_ = static_cast<uint8_t>(fn);
  w.axis_ = axis;
  w.size_ = size;
  w.shape_ = x->shape();
  switch (fn) {
    case GroupFn::kKeepLargest:
      w.dtype_ = x->dtype();
      w.keep_ = keep;
      break;
    case GroupFn::kScale:
      w.dtype_ = DType::kF32;
      w.target_ = target;
      w.shape_[axis] /= size;
      break;
    case GroupFn::kCodes:
      w.dtype_ = target;
      w.target_ = target;
      break;
  }
  w.children_.push_back(std::move(x));
  return Intern(std::move(w));
}

double RoundTo(DType dtype, double value) {
  if (dtype == DType::kF64) {
    return value != value ? std::numeric_limits<double>::quiet_NaN() : value;
  }
  const DType judged = dtype == DType::kC64 ? DType::kF32 : dtype;  // the real part
  std::byte element[8] = {};
  FromDouble(judged, value, element);
  const double rounded = ToDouble(judged, element);
  return rounded != rounded ? std::numeric_limits<double>::quiet_NaN() : rounded;
}

bool SameBits(double a, double b) { return SameBytes(a, b); }

// ---- questions about programs

namespace {

// Where a chain of verbs with one operand each ends, or null where it forks.
const Weight* EndOfChain(const Weight* w) {
  while (w->children().size() == 1) w = w->child().get();
  return w->children().empty() ? w : nullptr;
}

void Visit(const WeightPtr& w, std::set<const Weight*>& seen) {
  if (!seen.insert(w.get()).second) return;
  for (const WeightPtr& child : w->children()) Visit(child, seen);
}

}  // namespace

std::string StackMemberName(const Weight& stack, int64_t i) {
  const absl::string_view name = stack.stack_name();
  const auto at = static_cast<size_t>(stack.stack_at());
  return absl::StrCat(name.substr(0, at), stack.stack_first() + i, name.substr(at));
}

WeightPtr StackMember(const Weight& stack, int64_t i) {
  return WeightPool::Source(StackMemberName(stack, i), stack.dtype(),
                            Shape(stack.shape().begin() + 1, stack.shape().end()));
}

bool OnlyMoves(const WeightPtr& w) {
  std::set<const Weight*> seen;
  Visit(w, seen);
  return std::all_of(seen.begin(), seen.end(), [](const Weight* node) {
    switch (node->kind()) {
      case WeightKind::kSource:
      case WeightKind::kStack:
      case WeightKind::kFill:
      case WeightKind::kTake:
      case WeightKind::kTranspose:
      case WeightKind::kReshape:
      case WeightKind::kConcat:
        return true;
      case WeightKind::kCast:
      case WeightKind::kMap:
      case WeightKind::kContract:
      case WeightKind::kStat:
      case WeightKind::kGroup:
        return false;
    }
    return false;
  });
}

std::vector<std::string> SourcesOf(const WeightPtr& w) {
  if (const Weight* end = EndOfChain(w.get()); end != nullptr) {
    if (end->kind() == WeightKind::kSource) return {end->source_name()};
    if (end->kind() == WeightKind::kFill) return {};
  }
  std::set<const Weight*> seen;
  Visit(w, seen);
  std::vector<std::string> names;
  for (const Weight* node : seen) {
    if (node->kind() == WeightKind::kSource) names.push_back(node->source_name());
    if (node->kind() != WeightKind::kStack) continue;
    for (int64_t i = 0; i < node->shape()[0]; ++i) names.push_back(StackMemberName(*node, i));
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

int64_t ProgramSize(const WeightPtr& w) {
  std::set<const Weight*> seen;
  Visit(w, seen);
  return static_cast<int64_t>(seen.size());
}

}  // namespace twinforge
