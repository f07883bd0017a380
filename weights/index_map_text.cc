// The printed form of index maps: runs as slices are written in Python, and repetition
// found by the printer, so that 128 heads are one line.
//
//   8:16         0:64:2        63:-1:-1       5           one place
//   7*4          index 7, four times          fill:20     twenty places that hold the fill
//   (0:16 fill:112) x 3        copies, each moved on by the extent of what it names (16)
//   (0:2) x 4 by 8             copies, each moved on by 8
//
// `[A] x n` is short for `[(A) x n]`.
#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "weights/index_map.h"
#include "weights/pool.h"

namespace twinforge {
namespace {

// A group shorter than this is clearer written out.
constexpr size_t kLeastGrouped = 4;
// The printer looks for repetition with at most this many runs in a copy.
constexpr size_t kLongestPeriod = 16;
// Hostile text may not ask for more than this.
constexpr int64_t kMostRuns = int64_t{1} << 20;
constexpr int64_t kMostPlaces = int64_t{1} << 48;

// ---- printing

std::string RunText(const Run& run) {
  if (run.is_fill()) return absl::StrCat("fill:", run.count);
  if (run.count == 1) return absl::StrCat(run.start);
  if (run.step == 0) return absl::StrCat(run.start, "*", run.count);
  const int64_t last = run.start + (run.count - 1) * run.step;
  if (run.step == 1) return absl::StrCat(run.start, ":", last + 1);
  // Of the ends that stop behind `last`, the one that is a multiple of the step: both
  // halves of a 64-wide interleave end at 64.
  const int64_t stride = run.step > 0 ? run.step : -run.step;
  int64_t stop = (last / stride + 1) * stride;
  if (run.step < 0) stop = last == 0 ? -1 : (last - 1) / stride * stride;
  return absl::StrCat(run.start, ":", stop, ":", run.step);
}

struct Repetition {
  size_t period = 0;
  size_t copies = 0;
  int64_t stride = 0;
};

// Whether runs [at, at+period) come again `period` later, moved by `stride`.
bool Repeats(const std::vector<Run>& runs, size_t at, size_t period, int64_t stride) {
  if (at + 2 * period > runs.size()) return false;
  for (size_t i = at; i < at + period; ++i) {
    Run moved = runs[i];
    if (!moved.is_fill()) moved.start += stride;
    // An index moved to -1 would look like fill.
    if (moved.is_fill() != runs[i].is_fill() || !(moved == runs[i + period])) return false;
  }
  return true;
}

// The repetition from `at` on that covers most runs, the shortest of equals.
Repetition FindRepetition(const std::vector<Run>& runs, size_t at) {
  Repetition best;
  for (size_t period = 1; period <= kLongestPeriod && at + 2 * period <= runs.size(); ++period) {
    const Run* first = std::find_if(&runs[at], &runs[at] + period, [](const Run& r) { return !r.is_fill(); });
    if (first == &runs[at] + period || first[period].is_fill()) continue;
    Repetition found{.period = period, .copies = 1, .stride = first[period].start - first->start};
    while (Repeats(runs, at + (found.copies - 1) * period, period, found.stride)) ++found.copies;
    if (found.copies > 1 && found.copies * period > best.copies * best.period) best = found;
  }
  if (best.copies * best.period < kLeastGrouped) return {};
  return best;
}

int64_t Extent(absl::Span<const Run> runs) {
  int64_t max = -1;
  for (const Run& run : runs) {
    if (!run.is_fill()) max = std::max({max, run.start, run.start + (run.count - 1) * run.step});
  }
  return max + 1;
}

std::string RunsText(absl::Span<const Run> runs) {
  std::string text;
  for (const Run& run : runs) absl::StrAppend(&text, text.empty() ? "" : " ", RunText(run));
  return text;
}

std::string CopiesText(int64_t copies, int64_t stride, int64_t extent) {
  return absl::StrCat("x ", copies, stride == extent ? "" : absl::StrCat(" by ", stride));
}

// The map as copies of one block, the most there are; "" where it is not copies throughout.
// Recognised by places and not by runs: copies that touch are merged there, and
// [0:64 0:64] x 4 is [0:64 0:128 64:192 128:256 192:256].
std::string TileText(const IndexMap& map) {
  if (map.runs().size() < kLeastGrouped) return "";
  for (int64_t copies = static_cast<int64_t>(map.runs().size()); copies > 1; --copies) {
    if (map.size() % copies != 0) continue;
    const IndexMap block = map.Range(0, map.size() / copies);
    const int64_t extent = block.max_index() + 1;
    if (extent == 0) continue;  // nothing but fill
    const int64_t place = block.At(0) == Run::kFill ? block.runs()[0].count : 0;
    const int64_t moved = map.At(place + block.size());
    const int64_t stride = moved - block.At(place);
    int64_t lowest = extent;
    for (const Run& run : block.runs()) {
      if (!run.is_fill()) lowest = std::min({lowest, run.start, run.start + (run.count - 1) * run.step});
    }
    if (moved == Run::kFill || lowest + (copies - 1) * stride < 0) continue;
    if (!(IndexMap::Tile(block, copies, stride) == map)) continue;
    return absl::StrCat("[", RunsText(block.runs()), "] ", CopiesText(copies, stride, extent));
  }
  return "";
}

// ---- parsing

class Parser {
 public:
  Parser(absl::string_view text, int64_t& run_budget) : text_(text), run_budget_(run_budget) {}

  absl::StatusOr<std::vector<Run>> Map() {
    std::vector<Run> runs;
    TWIN_RETURN_IF_ERROR(Expect('['));
    TWIN_RETURN_IF_ERROR(Items(']', runs));
    if (Skip(); Looking("x")) {
      TWIN_RETURN_IF_ERROR(Tile(0, runs));
    }
    Skip();
    if (at_ != text_.size()) return Mistake("expected the end of the index map");
    return runs;
  }

 private:
  absl::Status Mistake(absl::string_view message) const {
    return Error(1590, absl::StrCat("index map: column ", at_ + 1), message,
                 "an index map is written like [0:300 fill:20]");
  }

  void Skip() {
    while (at_ < text_.size() && absl::ascii_isspace(text_[at_])) ++at_;
  }

  bool Looking(absl::string_view word) const { return text_.substr(at_, word.size()) == word; }

  absl::Status Expect(char c) {
    Skip();
    if (at_ == text_.size() || text_[at_] != c)
      return Mistake(absl::StrCat("expected '", std::string(1, c), "'"));
    ++at_;
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> Number() {
    size_t end = at_;
    if (end < text_.size() && text_[end] == '-') ++end;
    while (end < text_.size() && absl::ascii_isdigit(text_[end])) ++end;
    int64_t value = 0;
    if (!absl::SimpleAtoi(text_.substr(at_, end - at_), &value) || value > kMostPlaces ||
        value < -kMostPlaces) {
      return Mistake("expected a number");
    }
    at_ = end;
    return value;
  }

  absl::Status Add(Run run, std::vector<Run>& runs) {
    if (run.count <= 0) return Mistake("a run of no places");
    if (run.count > kMostPlaces) return Mistake("a run too long to hold");
    if (!run.is_fill()) {
      int64_t last = 0;
      if (__builtin_mul_overflow(run.count - 1, run.step, &last) ||
          __builtin_add_overflow(last, run.start, &last) || run.start < 0 || last < 0 || last > kMostPlaces) {
        return Mistake("an index outside any tensor");
      }
    }
    if (--run_budget_ < 0) return Mistake("more runs than a tensor can need");
    places_ += run.count;
    if (places_ > kMostPlaces) return Mistake("more places than a tensor can hold");
    runs.push_back(run);
    return absl::OkStatus();
  }

  // 5   5*3   8:16   0:64:2   fill:20
  absl::Status Item(std::vector<Run>& runs) {
    if (Looking("fill:")) {
      at_ += 5;
      TWIN_ASSIGN_OR_RETURN(const int64_t count, Number());
      return Add({.start = Run::kFill, .step = 0, .count = count}, runs);
    }
    TWIN_ASSIGN_OR_RETURN(const int64_t start, Number());
    if (start < 0) return Mistake("a negative index");
    if (Looking("*")) {
      ++at_;
      TWIN_ASSIGN_OR_RETURN(const int64_t count, Number());
      return Add({.start = start, .step = 0, .count = count}, runs);
    }
    if (!Looking(":")) return Add({.start = start, .step = 1, .count = 1}, runs);
    ++at_;
    TWIN_ASSIGN_OR_RETURN(const int64_t stop, Number());
    int64_t step = 1;
    if (Looking(":")) {
      ++at_;
      TWIN_ASSIGN_OR_RETURN(step, Number());
      if (step == 0) return Mistake("a step of 0");
    }
    const int64_t distance = step > 0 ? stop - start : start - stop;
    const int64_t stride = step > 0 ? step : -step;
    return Add({.start = start, .step = step, .count = distance <= 0 ? 0 : (distance - 1) / stride + 1},
               runs);
  }

  absl::Status Items(char close, std::vector<Run>& runs) {
    for (Skip(); at_ < text_.size() && text_[at_] != close; Skip()) {
      if (text_[at_] == '(') {
        if (close == ')') return Mistake("a group inside a group");
        ++at_;
        const size_t begin = runs.size();
        TWIN_RETURN_IF_ERROR(Items(')', runs));
        Skip();
        TWIN_RETURN_IF_ERROR(Tile(begin, runs));
      } else {
        TWIN_RETURN_IF_ERROR(Item(runs));
      }
    }
    return Expect(close);
  }

  // x 32   x 32 by 128: repeats runs [begin, end).
  absl::Status Tile(size_t begin, std::vector<Run>& runs) {
    TWIN_RETURN_IF_ERROR(Expect('x'));
    Skip();
    TWIN_ASSIGN_OR_RETURN(const int64_t copies, Number());
    if (copies < 1) return Mistake("copies must be at least 1");
    const std::vector<Run> block(runs.begin() + begin, runs.end());
    int64_t stride = Extent(block);
    if (Skip(); Looking("by")) {
      at_ += 2;
      Skip();
      TWIN_ASSIGN_OR_RETURN(stride, Number());
    }
    for (int64_t copy = 1; copy < copies && !block.empty(); ++copy) {
      for (Run run : block) {
        int64_t moved = 0;
        if (!run.is_fill() && (__builtin_mul_overflow(copy, stride, &moved) ||
                               __builtin_add_overflow(run.start, moved, &run.start) || run.start < 0)) {
          return Mistake("an index outside any tensor");
        }
        TWIN_RETURN_IF_ERROR(Add(run, runs));
      }
    }
    return absl::OkStatus();
  }

  absl::string_view text_;
  size_t at_ = 0;
  int64_t places_ = 0;
  int64_t& run_budget_;
};

}  // namespace

std::string IndexMap::Text() const {
  if (const std::string tiled = TileText(*this); !tiled.empty()) return tiled;
  std::string text;
  for (size_t at = 0; at < runs_.size();) {
    const Repetition found = FindRepetition(runs_, at);
    if (!text.empty()) text += ' ';
    if (found.copies == 0) {
      text += RunText(runs_[at++]);
      continue;
    }
    const absl::Span<const Run> block(&runs_[at], found.period);
    absl::StrAppend(&text, "(", RunsText(block), ") ", CopiesText(found.copies, found.stride, Extent(block)));
    at += found.period * found.copies;
  }
  return absl::StrCat("[", text, "]");
}

absl::StatusOr<IndexMap> IndexMap::Parse(absl::string_view text) {
  int64_t run_budget = kMostRuns;
  return ParseIndexMap(text, run_budget);
}

absl::StatusOr<IndexMap> ParseIndexMap(absl::string_view text, int64_t& run_budget) {
  TWIN_ASSIGN_OR_RETURN(std::vector<Run> runs, Parser(text, run_budget).Map());
  return IndexMap(std::move(runs));
}

}  // namespace twinforge
