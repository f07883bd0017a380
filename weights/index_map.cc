#include "weights/index_map.h"

#include <algorithm>

#include "base/check.h"

namespace twinforge {
namespace {

// ---- the normal form
//
// A function of the sequence of indices alone, so that equal maps have equal runs: from
// the left, a run begins as (a, b) if b - a is 0 or 1 or the next index continues it, and
// reaches as far as it is continued; else `a` stands alone. Thus 0 5 6 7 8 is [0 5:9] and
// not [0:6:5 6:9], and 0 0 1 1 is two repeats.

// Walks the elements of a list of runs, whole runs at a time where it can.
class Cursor {
 public:
  explicit Cursor(const std::vector<Run>& runs) : runs_(runs) { SkipEmpty(); }

  bool done() const { return at_ == runs_.size(); }
  bool at_fill() const { return runs_[at_].is_fill(); }
  int64_t step() const { return runs_[at_].step; }
  int64_t left() const { return runs_[at_].count - used_; }
  int64_t index() const { return runs_[at_].start + used_ * runs_[at_].step; }

  // The index `ahead` elements further on; fill and the end are nothing.
  std::optional<int64_t> Peek(int64_t ahead) const {
    size_t at = at_;
    int64_t used = used_ + ahead;
    for (; at < runs_.size() && used >= runs_[at].count; ++at) used -= runs_[at].count;
    if (at == runs_.size() || runs_[at].is_fill()) return std::nullopt;
    return runs_[at].start + used * runs_[at].step;
  }

  void Advance(int64_t count) {
    used_ += count;
    SkipEmpty();
  }

 private:
  void SkipEmpty() {
    while (at_ < runs_.size() && used_ == runs_[at_].count) {
      ++at_;
      used_ = 0;
    }
  }

  const std::vector<Run>& runs_;
  size_t at_ = 0;
  int64_t used_ = 0;
};

// The run that begins at the cursor, which moves past it.
Run NextRun(Cursor& cursor) {
  if (cursor.at_fill()) {
    Run fill{.start = Run::kFill, .step = 0, .count = 0};
    while (!cursor.done() && cursor.at_fill()) {
      fill.count += cursor.left();
      cursor.Advance(cursor.left());
    }
    return fill;
  }
  Run run{.start = cursor.index(), .step = 1, .count = 1};
  const std::optional<int64_t> second = cursor.Peek(1);
  const std::optional<int64_t> third = cursor.Peek(2);
  const int64_t step = second.has_value() ? *second - run.start : 0;
  const bool begins =
      second.has_value() && (step == 0 || step == 1 || (third.has_value() && *third - *second == step));
  if (begins) run.step = step;
  const int64_t first_taken = begins && cursor.step() == step ? cursor.left() : 1;
  cursor.Advance(first_taken);
  run.count = first_taken;
  while (begins && !cursor.done() && !cursor.at_fill() &&
         cursor.index() == run.start + run.count * run.step) {
    const int64_t taken = cursor.step() == run.step ? cursor.left() : 1;
    run.count += taken;
    cursor.Advance(taken);
  }
  return run;
}

bool IsNormal(const Run& run) {
  if (run.is_fill()) return run.step == 0;
  return run.count == 1 ? run.step == 1 : run.count > 2 || run.step == 0 || run.step == 1;
}

std::vector<Run> Normalise(std::vector<Run> runs) {
  if (runs.size() == 1 && runs[0].count > 0 && IsNormal(runs[0])) return runs;
  std::vector<Run> normal;
  normal.reserve(runs.size());
  for (Cursor cursor(runs); !cursor.done();) normal.push_back(NextRun(cursor));
  return normal;
}

// Restricts a run to its elements [begin, begin+count).
Run Part(const Run& run, int64_t begin, int64_t count) {
  return run.is_fill() ? Run{.start = Run::kFill, .step = 0, .count = count}
                       : Run{.start = run.start + begin * run.step, .step = run.step, .count = count};
}

}  // namespace

IndexMap::IndexMap(std::vector<Run> runs) : runs_(Normalise(std::move(runs))) {
  const bool several = runs_.size() > 1;
  if (several) ends_.reserve(runs_.size());
  for (const Run& run : runs_) {
    TWIN_CHECK(run.is_fill() || (run.start >= 0 && run.start + (run.count - 1) * run.step >= 0),
               "an index map names a negative index");
    size_ += run.count;
    if (several) ends_.push_back(size_);
  }
}

size_t IndexMap::RunAt(int64_t place) const {
  if (ends_.empty()) return place < size_ ? 0 : runs_.size();
  return std::upper_bound(ends_.begin(), ends_.end(), place) - ends_.begin();
}

IndexMap IndexMap::Identity(int64_t size) { return Slice(0, size); }

IndexMap IndexMap::Slice(int64_t start, int64_t count, int64_t step) {
  return IndexMap({Run{.start = start, .step = step, .count = count}});
}

IndexMap IndexMap::Fill(int64_t count) {
  return IndexMap({Run{.start = Run::kFill, .step = 0, .count = count}});
}

IndexMap IndexMap::Join(absl::Span<const IndexMap> parts) {
  std::vector<Run> runs;
  for (const IndexMap& part : parts) runs.insert(runs.end(), part.runs_.begin(), part.runs_.end());
  return IndexMap(std::move(runs));
}

IndexMap IndexMap::Tile(const IndexMap& block, int64_t copies, int64_t stride) {
  if (copies == 1) return block;
  if (copies > 0 && block.runs_.size() == 1 && block.runs_[0].step == 1 && block.runs_[0].count == stride) {
    return Slice(block.runs_[0].start, stride * copies);  // copies that continue one another
  }
  std::vector<Run> runs;
  runs.reserve(block.runs_.size() * copies);
  for (int64_t copy = 0; copy < copies; ++copy) {
    for (Run run : block.runs_) {
      if (!run.is_fill()) run.start += copy * stride;
      runs.push_back(run);
    }
  }
  return IndexMap(std::move(runs));
}

int64_t IndexMap::max_index() const {
  int64_t max = -1;
  for (const Run& run : runs_) {
    if (!run.is_fill()) max = std::max({max, run.start, run.start + (run.count - 1) * run.step});
  }
  return max;
}

bool IndexMap::has_fill() const {
  return std::any_of(runs_.begin(), runs_.end(), [](const Run& run) { return run.is_fill(); });
}

bool IndexMap::IsIdentity(int64_t source_size) const {
  if (source_size != size_) return false;
  return size_ == 0 || (runs_.size() == 1 && runs_[0] == Run{.start = 0, .step = 1, .count = size_});
}

int64_t IndexMap::At(int64_t place) const {
  TWIN_CHECK(place >= 0 && place < size_, "place outside an index map");
  const size_t at = RunAt(place);
  const Run& run = runs_[at];
  return run.is_fill() ? Run::kFill : run.start + (place - (EndOf(at) - run.count)) * run.step;
}

IndexMap IndexMap::Range(int64_t begin, int64_t count) const {
  TWIN_CHECK(begin >= 0 && count >= 0 && count <= size_ - begin, "range outside an index map");
  std::vector<Run> runs;
  const int64_t end = begin + count;
  size_t at = RunAt(begin);
  for (; at < runs_.size() && begin < end; ++at) {
    const int64_t first = EndOf(at) - runs_[at].count;
    const int64_t taken = std::min(end, EndOf(at)) - begin;
    runs.push_back(Part(runs_[at], begin - first, taken));
    begin += taken;
  }
  return IndexMap(std::move(runs));
}

IndexMap IndexMap::After(const IndexMap& inner) const {
  std::vector<Run> runs;
  runs.reserve(runs_.size());
  for (const Run& run : runs_) {
    if (run.is_fill()) {
      runs.push_back(run);
      continue;
    }
    for (int64_t done = 0; done < run.count;) {
      const int64_t place = run.start + done * run.step;
      TWIN_CHECK(place < inner.size_, "an index map reads past the end of the one below it");
      const size_t at = inner.RunAt(place);
      const Run& below = inner.runs_[at];
      const int64_t first = inner.EndOf(at) - below.count;
      int64_t taken = run.count - done;  // as many as stay within `below`
      if (run.step > 0) taken = std::min(taken, (inner.EndOf(at) - 1 - place) / run.step + 1);
      if (run.step < 0) taken = std::min(taken, (place - first) / -run.step + 1);
      Run part{.start = Run::kFill, .step = 0, .count = taken};
      if (!below.is_fill()) {
        part.start = below.start + (place - first) * below.step;
        part.step = run.step * below.step;
      }
      runs.push_back(part);
      done += taken;
    }
  }
  return IndexMap(std::move(runs));
}

std::optional<IndexMap> IndexMap::Inverse(int64_t source_size) const {
  // Runs of step 1 or -1 that touch no common index, which is what most maps consist of,
  // are turned around as they stand; anything else is spread out.
  struct Piece {
    int64_t low;
    Run run;
  };
  std::vector<Piece> pieces;
  bool plain = true;
  for (size_t at = 0; at < runs_.size() && plain; ++at) {
    const Run& run = runs_[at];
    if (run.is_fill()) continue;
    plain = run.count == 1 || run.step == 1 || run.step == -1;
    const int64_t first = EndOf(at) - run.count;
    const int64_t low = run.step < 0 ? run.start - (run.count - 1) : run.start;
    pieces.push_back(
        {low,
         {.start = run.step < 0 ? EndOf(at) - 1 : first, .step = run.step < 0 ? -1 : 1, .count = run.count}});
  }
  if (plain) {
    std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.low < b.low; });
    std::vector<Run> runs;
    int64_t covered = 0;
    for (const Piece& piece : pieces) {
      if (piece.low > covered && covered < source_size) return std::nullopt;
      plain = plain && piece.low == covered;
      runs.push_back(piece.run);
      covered = std::max(covered, piece.low + piece.run.count);
    }
    if (plain) {
      if (covered < source_size) return std::nullopt;
      return IndexMap(std::move(runs)).Range(0, source_size);
    }
  }
  std::vector<int64_t> place_of(source_size, -1);
  for (size_t at = 0; at < runs_.size(); ++at) {
    const Run& run = runs_[at];
    if (run.is_fill()) continue;
    for (int64_t i = 0; i < run.count; ++i) {
      const int64_t index = run.start + i * run.step;
      if (index < source_size && place_of[index] < 0) place_of[index] = EndOf(at) - run.count + i;
    }
  }
  std::vector<Run> runs;
  for (int64_t place : place_of) {
    if (place < 0) return std::nullopt;
    if (!runs.empty() && runs.back().start + runs.back().count == place) {
      ++runs.back().count;
    } else {
      runs.push_back({.start = place, .step = 1, .count = 1});
    }
  }
  return IndexMap(std::move(runs));
}

IndexMap IndexMap::Refine(int64_t block) const {
  TWIN_CHECK(block >= 0, "an axis refined by a negative block");
  if (block == 1) return *this;
  std::vector<Run> runs;
  for (const Run& run : runs_) {
    if (run.is_fill()) {
      runs.push_back({.start = Run::kFill, .step = 0, .count = run.count * block});
    } else if (run.step == 1) {
      runs.push_back({.start = run.start * block, .step = 1, .count = run.count * block});
    } else {
      for (int64_t i = 0; i < run.count; ++i) {
        runs.push_back({.start = (run.start + i * run.step) * block, .step = 1, .count = block});
      }
    }
  }
  return IndexMap(std::move(runs));
}

std::optional<IndexMap> IndexMap::Coarsen(int64_t block) const {
  TWIN_CHECK(block >= 1, "an axis coarsened by a block of nothing");
  if (block == 1) return *this;
  std::vector<Run> runs;
  runs.reserve(runs_.size());
  for (const Run& run : runs_) {
    // In the normal form a block of two or more adjacent indices is always within one run
    // of step 1, so it is enough to look at runs singly.
    if (run.count % block != 0) return std::nullopt;
    if (run.is_fill()) {
      runs.push_back({.start = Run::kFill, .step = 0, .count = run.count / block});
    } else {
      if (run.step != 1 || run.start % block != 0) return std::nullopt;
      runs.push_back({.start = run.start / block, .step = 1, .count = run.count / block});
    }
  }
  return IndexMap(std::move(runs));
}

}  // namespace twinforge
