// Which source index stands at each place along an axis.
//
// An index map is a list of runs (start, step, count); a run may instead be *fill*:
// `count` places that come from nowhere and hold a constant. One map says what other
// tools need many verbs for:
//
//   slice rows 8..15            [8:16]
//   pad 300 rows to 320         [0:300 fill:20]
//   every second row            [0:64:2]
//   interleaved rope to halves  [0:64:2 1:64:2]
//   the same for 32 heads       [0:64:2 1:64:2] x 32     (copy r reads r*64 further on)
//   repeat each KV head twice   [0:64 0:64] x 4
//   reverse                     [63:-1:-1]
//   one place, one place thrice [5] [5*3]
//   heads padded, heads added   [(0:16 fill:112) x 3 48:64 fill:624]
//   every other pair            [0:2] x 8 by 4           (copy r reads r*4 further on)
//
// A map is normalised when made: adjacent runs that continue one another are merged,
// runs of no places vanish, and where a sequence can be cut into runs in several ways one
// is chosen, so equal maps have equal runs and equal texts. `x n` is found by the printer;
// it is not stored as a separate notion.
#ifndef TWINFORGE_WEIGHTS_INDEX_MAP_H_
#define TWINFORGE_WEIGHTS_INDEX_MAP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace twinforge {

// Places start, start+step, ..., `count` of them. A fill run has start == kFill, step == 0.
struct Run {
  static constexpr int64_t kFill = -1;
  int64_t start = 0;
  int64_t step = 1;
  int64_t count = 0;
  bool is_fill() const { return start == kFill; }
  bool operator==(const Run&) const = default;
};

class IndexMap {
 public:
  IndexMap() = default;
  // REQUIRES: counts >= 0; every index that a run names is >= 0.
  explicit IndexMap(std::vector<Run> runs);

  static IndexMap Identity(int64_t size);
  static IndexMap Slice(int64_t start, int64_t count, int64_t step = 1);
  static IndexMap Fill(int64_t count);
  // The maps one after another.
  static IndexMap Join(absl::Span<const IndexMap> parts);
  // `copies` of `block`, copy r with every index moved by r*stride.
  static IndexMap Tile(const IndexMap& block, int64_t copies, int64_t stride);

  int64_t size() const { return size_; }  // places, fill included
  int64_t max_index() const;              // -1 when all is fill
  const std::vector<Run>& runs() const { return runs_; }
  bool has_fill() const;
  bool IsIdentity(int64_t source_size) const;

  // The source index at `place`, or Run::kFill. O(log runs).
  int64_t At(int64_t place) const;
  // The map restricted to places [begin, begin+count).
  IndexMap Range(int64_t begin, int64_t count) const;
  // First `inner`, then this: result.At(i) == inner.At(this->At(i)), fill stays fill.
  IndexMap After(const IndexMap& inner) const;
  // A map from source index to a place that holds it (the first such place), over
  // [0, source_size); nullopt if some index appears nowhere.
  std::optional<IndexMap> Inverse(int64_t source_size) const;
  // The same movement for an axis of `block` times the extent (each index is a block of
  // adjacent ones), and back; Coarsen is nullopt where a run cuts a block.
  IndexMap Refine(int64_t block) const;
  std::optional<IndexMap> Coarsen(int64_t block) const;

  std::string Text() const;
  static absl::StatusOr<IndexMap> Parse(absl::string_view text);

  bool operator==(const IndexMap& other) const { return runs_ == other.runs_; }

 private:
  int64_t EndOf(size_t run) const { return ends_.empty() ? size_ : ends_[run]; }
  size_t RunAt(int64_t place) const;  // the run that holds it; runs().size() past the end

  std::vector<Run> runs_;
  std::vector<int64_t> ends_;  // cumulative counts, for At(); empty where there is one run
  int64_t size_ = 0;
};

}  // namespace twinforge

#endif  // TWINFORGE_WEIGHTS_INDEX_MAP_H_
