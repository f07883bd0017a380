// Reads a box of a weight program, in an amount of memory that is known beforehand.
//
// The reader asks for boxes of whole rows in file order; each verb turns a box of its
// result into boxes of its operands. ScratchBytes() says exactly how much room a read
// will take beside `out`, so "bounded memory" is arithmetic, and a law compares the
// prediction with the high-water mark of an instrumented Scratch.
//
// Stat results are small and computed once: StatCache holds them (fill it with
// PrepareStats before reading; a Read that meets an unprepared Stat computes it whole).
#ifndef TWINFORGE_WEIGHTS_READ_H_
#define TWINFORGE_WEIGHTS_READ_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "weights/weight.h"

namespace twinforge {

// Where stored bytes come from. Implementations are thread-safe.
class TensorReader {
 public:
  virtual ~TensorReader() = default;
  // Elements [first, first+count) of the stored tensor, row-major, unpacked, into `out`
  // (count * ElementBytes(source.dtype()) bytes). REQUIRES: source.kind() == kSource.
  virtual absl::Status ReadElements(const Weight& source, int64_t first, int64_t count,
                                    std::byte* out) const = 0;
  // Fails if what is read changed since it was opened.
  virtual absl::Status CheckUnchanged() const { return absl::OkStatus(); }
  // Paths of all files that it reads from, always in the same order; none where it reads from memory.
  virtual std::vector<std::string> Files() const { return {}; }
};

// Room reused from read to read, last in first out. Not thread-safe: one per worker.
//
// One block serves all pushes. A push that does not fit gets memory of its own until it
// is popped, and the block grows before the next read; so what is held is what the worst
// read needed, never the sum of the worst at each depth.
class Scratch {
 public:
  std::byte* Push(int64_t bytes);  // 64-byte aligned, not cleared
  void Pop();                      // the latest Push
  // Room for any read whose ScratchBytes() is at most `bytes`. Only between reads.
  void Reserve(int64_t bytes);
  int64_t high_water() const { return high_water_; }  // sum of bytes pushed at the worst moment

 private:
  struct Free {
    void operator()(std::byte* at) const { std::free(at); }
  };
  using Memory = std::unique_ptr<std::byte, Free>;
  struct Pushed {
    int64_t bytes;    // as asked for
    int64_t rounded;  // as taken
    Memory own;       // null where it lies in the block
  };
  static Memory Allocate(int64_t bytes);

  Memory block_;
  int64_t block_bytes_ = 0;
  int64_t block_used_ = 0;
  std::vector<Pushed> pushed_;
  int64_t in_use_ = 0;
  int64_t high_water_ = 0;
  int64_t rounded_in_use_ = 0;
  int64_t rounded_high_water_ = 0;
};

// The values of Stat nodes that were computed beforehand. Filled by one thread, then
// read by any number.
class StatCache {
 public:
  // All values of `stat`, row-major, or null where it was not prepared.
  const double* Find(const Weight& stat) const;
  void Insert(const WeightPtr& stat, std::vector<double> values);

 private:
  std::map<const Weight*, std::pair<WeightPtr, std::vector<double>>> values_;
};

// Computes every Stat in `w` that `cache` lacks, innermost first, each in one streamed pass.
absl::Status PrepareStats(const WeightPtr& w, const TensorReader& reader, Scratch& scratch, StatCache& cache);

// `box` of `w`, dense and row-major, into `out` (ElementCount(box.size) elements, aligned to one).
absl::Status Read(const WeightPtr& w, const Box& box, const TensorReader& reader, std::byte* out,
                  Scratch& scratch, const StatCache* stats = nullptr);

// Exactly the high_water() that Read(w, box) leaves in a fresh Scratch, given the same
// prepared statistics.
int64_t ScratchBytes(const WeightPtr& w, const Box& box, const StatCache* stats = nullptr);

}  // namespace twinforge

#endif  // TWINFORGE_WEIGHTS_READ_H_
