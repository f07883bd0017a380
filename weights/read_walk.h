// The walk behind Read() and ScratchBytes(): one recursion, told where its result goes.
//
//   Take(Transpose(Source))     the region asked for shrinks and turns on its way down,
//        |                      the destination's strides turn with it, and at the leaf
//        v                      stored bytes are read to where they belong
//   destination
//
// So moving verbs need no room of their own. What does need room says so with Push():
// a leaf whose runs are too short to be read one by one, and arithmetic, which works
// on blocks. Measuring is the same walk with the hands tied: no reader, no bytes, only
// the sums of what would have been pushed. Prediction and reading cannot drift apart,
// since no decision is written twice.
#ifndef TWINFORGE_WEIGHTS_READ_WALK_H_
#define TWINFORGE_WEIGHTS_READ_WALK_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "weights/read.h"
#include "weights/strided.h"
#include "weights/weight.h"

namespace twinforge {

// The part of a weight that is wanted; like Box, but without the heap.
struct Region {
  Ints start;
  Ints size;
};

// Where the region's first element goes, in elements from `base`, and what lies between
// neighbours. Offsets rather than pointers: when measuring there is nothing to point at.
struct Target {
  std::byte* base = nullptr;
  int64_t offset = 0;
  Ints stride;
};

// Room that is asked for once and given up in reverse order.
class Room {
 public:
  explicit Room(Scratch* scratch) : scratch_(scratch) {}  // null: only count
  std::byte* Push(int64_t bytes);
  void Pop(int64_t bytes);
  int64_t high_water() const { return high_water_; }

 private:
  Scratch* scratch_;
  int64_t in_use_ = 0;
  int64_t high_water_ = 0;
};

// A buffer that lasts as long as its scope.
class Held {
 public:
  Held(Room& room, int64_t bytes) : room_(room), bytes_(bytes), at_(room.Push(bytes)) {}
  ~Held() { room_.Pop(bytes_); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  std::byte* get() const { return at_; }

 private:
  Room& room_;
  int64_t bytes_;
  std::byte* at_;
};

// Which blocks are visited: all of them, or one of each size, where only sizes matter.
enum class Blocks { kAll, kOneOfEachSize };

// Whether a read of `w` takes the same room for boxes of one size wherever they begin.
// Measuring then needs to look at one of them only.
bool SameRoomEverywhere(const Weight& w);

class Walk {
 public:
  // A null reader measures. `stats` may be null.
  Walk(const TensorReader* reader, Scratch* scratch, const StatCache* stats)
      : reader_(reader), room_(scratch), stats_(stats) {}

  // `region` of `w` into `to`.
  absl::Status Visit(const Weight& w, const Region& region, const Target& to);

  int64_t high_water() const { return room_.high_water(); }

 private:
  bool measuring() const { return reader_ == nullptr; }
  // Which blocks of an operand must be visited.
  Blocks BlocksOf(const Weight& operand) const {
    return measuring() && SameRoomEverywhere(operand) ? Blocks::kOneOfEachSize : Blocks::kAll;
  }

  // Moving verbs (read_move.cc).
  absl::Status VisitSource(const Weight& w, const Region& region, const Target& to);
  absl::Status VisitStack(const Weight& w, const Region& region, const Target& to);
  absl::Status VisitSourceStaged(const Weight& w, int64_t first, const StridedAxes& axes, const Target& to);
  absl::Status VisitFill(const Weight& w, const Region& region, const Target& to);
  absl::Status VisitTake(const Weight& w, const Region& region, const Target& to);
  absl::Status VisitTakeRuns(const Weight& w, const IndexMap& map, const Region& region, const Target& to);
  absl::Status VisitTakeStaged(const Weight& w, const IndexMap& map, const Region& region, const Target& to);
  void FillRuns(const Weight& w, const IndexMap& map, const Region& region, const Target& to);
  absl::Status VisitTranspose(const Weight& w, const Region& region, const Target& to);
  absl::Status VisitReshape(const Weight& w, const Region& region, const Target& to);
  absl::Status VisitConcat(const Weight& w, const Region& region, const Target& to);

  // Verbs that compute (read_compute.cc, the last in read_group.cc).
  absl::Status VisitCast(const Weight& w, const Region& region, const Target& to);
  absl::Status VisitMap(const Weight& w, const Region& region, const Target& to);
  absl::Status VisitContract(const Weight& w, const Region& region, const Target& to);
  absl::Status ContractBlock(const Weight& w, const Region& region, const Target& to, double* sums);
  absl::Status VisitStat(const Weight& w, const Region& region, const Target& to);
  absl::Status VisitGroup(const Weight& w, const Region& region, const Target& to);

  void Fill(DType dtype, double value, absl::Span<const int64_t> size, const Target& to);
  Ints ComputeBlock(const Weight& operand, absl::Span<const int64_t> size, int64_t element_bytes) const;

  const TensorReader* reader_;
  Room room_;
  const StatCache* stats_;
};

// ---- shared by the files of the walk

// Stored bytes are staged, and blocks computed, in about this many: a second-level cache holds them.
inline constexpr int64_t kBlockBytes = 2 << 20;

inline int64_t Product(absl::Span<const int64_t> size) {
  int64_t product = 1;
  for (int64_t n : size) product *= n;
  return product;
}

inline Target DenseTarget(std::byte* at, absl::Span<const int64_t> size) {
  return {at, 0, DenseStrides(size)};
}

// `to` moved by `index` along its axes.
inline Target Shifted(const Target& to, absl::Span<const int64_t> index) {
  Target moved = to;
  for (size_t i = 0; i < index.size(); ++i) moved.offset += index[i] * to.stride[i];
  return moved;
}

inline std::byte* At(const Target& to, int64_t element_bytes) { return to.base + to.offset * element_bytes; }

// The largest block that is whole along inner axes, partial along one and one along
// outer axes, of at most `limit` elements; at least one element. Blocks like these,
// taken in row-major order, visit elements in row-major order.
Ints RowBlock(absl::Span<const int64_t> size, int64_t limit);

// Calls visit(start, size) for the blocks of `box` cut at multiples of `block`, last axis
// fastest, until one fails.
template <typename Fn>
absl::Status ForEachBlock(absl::Span<const int64_t> box, absl::Span<const int64_t> block, Blocks blocks,
                          Fn visit) {
  Ints start(box.size(), 0);
  Ints size(box.size());
  while (true) {
    for (size_t i = 0; i < box.size(); ++i) size[i] = std::min(block[i], box[i] - start[i]);
    if (absl::Status status = visit(start, size); !status.ok()) return status;
    int64_t i = static_cast<int64_t>(box.size()) - 1;
    for (; i >= 0; --i) {
      start[i] += block[i];
      const int64_t tail = box[i] / block[i] * block[i];
      if (blocks == Blocks::kOneOfEachSize && start[i] < tail) start[i] = tail;
      if (start[i] < box[i]) break;
      start[i] = 0;
    }
    if (i < 0) return absl::OkStatus();
  }
}

// Values pass through buffers of this many doubles on the stack, which count as no scratch.
inline constexpr int64_t kChunk = 512;

// `count` elements that lie `stride` apart, as doubles. A stride of 0 repeats one.
// REQUIRES: count <= kChunk.
void LoadDoubles(DType dtype, const std::byte* at, int64_t stride, int64_t count, double* out);
// The other way, rounded once.
void StoreDoubles(const double* values, int64_t count, DType dtype, std::byte* at, int64_t stride);

// The greater of two; once a NaN, always a NaN.
inline double Greater(double a, double b) { return std::isnan(a) || a >= b ? a : b; }

// Whether cutting a read of `w` into blocks of rows costs little: nothing in it turns
// rows into columns or computes whole rows for one element.
bool StreamsByRows(const Weight& w);

}  // namespace twinforge

#endif  // TWINFORGE_WEIGHTS_READ_WALK_H_
