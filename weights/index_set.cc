#include "weights/index_set.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"

namespace twinforge {
namespace {

bool IsAdjacent(const Run& run) { return run.count == 1 || run.step == 1; }

bool IsAllAdjacent(const IndexMap& map) {
  return std::all_of(map.runs().begin(), map.runs().end(),
                     [](const Run& run) { return run.is_fill() || IsAdjacent(run); });
}

std::vector<int64_t> Expand(const IndexMap& map) {
  std::vector<int64_t> indices;
  indices.reserve(map.size());
  for (const Run& run : map.runs()) {
    for (int64_t i = 0; i < run.count; ++i) indices.push_back(run.start + i * run.step);
  }
  return indices;
}

// Rows of the operand's first axis, all of which hold the same set of inner indices.
struct Rows {
  IndexMap inner;                                   // within a row
  std::vector<Run> rows;                            // row numbers
  std::vector<std::pair<int64_t, int64_t>> places;  // per run of rows: first position, rows
};

// Collects the rows of a flat set. Rows held completely are taken in bulk.
class RowGroups {
 public:
  explicit RowGroups(int64_t row) : row_(row) {}

  // Indices [first, first + count), which stand at positions from `position` on.
  void AddRun(int64_t first, int64_t count, int64_t position) {
    while (count > 0) {
      const int64_t number = first / row_;
      const int64_t into = first % row_;
      if (into == 0 && count >= row_ && (number != open_ || pending_.empty())) {
        const int64_t rows = count / row_;
        Flush();
        Put(IndexMap::Identity(row_), number, rows, position);
        first += rows * row_;
        count -= rows * row_;
        position += rows * row_;
        continue;
      }
      if (number != open_) Flush();
      if (pending_.empty()) position_ = position;
      open_ = number;
      const int64_t length = std::min(count, row_ - into);
      pending_.push_back({into, 1, length});
      first += length;
      count -= length;
      position += length;
    }
  }

  std::vector<Rows> Finish() {
    Flush();
    return std::move(groups_);
  }

 private:
  void Flush() {
    if (pending_.empty()) return;
    Put(IndexMap(std::exchange(pending_, {})), open_, 1, position_);
  }

  void Put(const IndexMap& inner, int64_t number, int64_t rows, int64_t position) {
    std::vector<int64_t> key;
    for (const Run& run : inner.runs()) key.insert(key.end(), {run.start, run.step, run.count});
    const auto [it, fresh] = index_.try_emplace(std::move(key), groups_.size());
    if (fresh) groups_.push_back({inner, {}, {}});
    groups_[it->second].rows.push_back({number, 1, rows});
    groups_[it->second].places.push_back({position, rows});
  }

  int64_t row_;
  int64_t open_ = -1;     // the row that `pending_` belongs to
  int64_t position_ = 0;  // of its first element
  std::vector<Run> pending_;
  std::vector<Rows> groups_;
  std::map<std::vector<int64_t>, size_t> index_;
};

}  // namespace

IndexMap MapOf(absl::Span<const int64_t> indices) {
  std::vector<Run> runs;
  for (int64_t index : indices) {
    if (!runs.empty() && runs.back().start + runs.back().count == index) {
      ++runs.back().count;
    } else {
      runs.push_back({index, 1, 1});
    }
  }
  return IndexMap(std::move(runs));
}

Reached ReachedThrough(const IndexMap& map, int64_t extent) {
  if (map.IsIdentity(extent)) return {map, map};
  std::vector<Run> indices;
  std::vector<Run> positions;
  if (IsAllAdjacent(map)) {
    std::vector<std::pair<Run, int64_t>> runs;  // with the place of the first
    int64_t place = 0;
    for (const Run& run : map.runs()) {
      if (!run.is_fill()) runs.push_back({run, place});
      place += run.count;
    }
    std::sort(runs.begin(), runs.end(), [](const auto& a, const auto& b) {
      return std::pair(a.first.start, a.second) < std::pair(b.first.start, b.second);
    });
    int64_t next = 0;  // everything below is settled
    for (const auto& [run, first] : runs) {
      const int64_t skip = std::max<int64_t>(0, next - run.start);
      if (skip >= run.count) continue;
      indices.push_back({run.start + skip, 1, run.count - skip});
      positions.push_back({first + skip, 1, run.count - skip});
      next = run.start + run.count;
    }
    return {IndexMap(std::move(indices)), IndexMap(std::move(positions))};
  }
  std::vector<int64_t> place_of(extent, Run::kFill);
  int64_t place = 0;
  for (const Run& run : map.runs()) {
    for (int64_t i = 0; i < run.count; ++i, ++place) {
      if (run.is_fill()) continue;
      int64_t& known = place_of[run.start + i * run.step];
      if (known == Run::kFill) known = place;
    }
  }
  std::vector<int64_t> reached, places;
  for (int64_t index = 0; index < extent; ++index) {
    if (place_of[index] == Run::kFill) continue;
    reached.push_back(index);
    places.push_back(place_of[index]);
  }
  return {MapOf(reached), MapOf(places)};
}

int64_t CountBelow(const IndexMap& set, int64_t bound) {
  int64_t count = 0;
  for (const Run& run : set.runs()) {
    if (run.start >= bound) break;
    const int64_t step = run.count == 1 ? 1 : run.step;
    count += std::min(run.count, (bound - run.start + step - 1) / step);
  }
  return count;
}

IndexMap Moved(const IndexMap& set, int64_t by) {
  if (by == 0) return set;
  std::vector<Run> runs = set.runs();
  for (Run& run : runs) run.start += by;
  return IndexMap(std::move(runs));
}

bool IsSubset(const IndexMap& part, const IndexMap& set) {
  if (part.size() > set.size()) return false;
  if (part == set || part.size() == 0) return true;
  if (set.runs().size() == 1 && IsAdjacent(set.runs()[0])) {  // ascending: the ends decide
    const Run& run = set.runs()[0];
    return part.At(0) >= run.start && part.At(part.size() - 1) < run.start + run.count;
  }
  const std::vector<int64_t> a = Expand(part);
  const std::vector<int64_t> b = Expand(set);
  return std::includes(b.begin(), b.end(), a.begin(), a.end());
}

IndexMap PositionsIn(const IndexMap& list, const IndexMap& wanted) {
  if (list == wanted) return IndexMap::Identity(wanted.size());
  if (list.runs().size() == 1 && IsAdjacent(list.runs()[0])) return Moved(wanted, -list.runs()[0].start);
  absl::flat_hash_map<int64_t, int64_t> place;
  const std::vector<int64_t> listed = Expand(list);
  for (size_t i = 0; i < listed.size(); ++i) place.emplace(listed[i], static_cast<int64_t>(i));
  std::vector<int64_t> positions = Expand(wanted);
  for (int64_t& index : positions) {
    const auto it = place.find(index);
    TWIN_CHECK(it != place.end(), "an index that the list lacks");
    index = it->second;
  }
  return MapOf(positions);
}

std::vector<ShapeGroup> ShapeGroups(absl::Span<const int64_t> outer, absl::Span<const int64_t> inner) {
  std::vector<ShapeGroup> groups;
  size_t i = 0;
  size_t j = 0;
  while (i < outer.size() || j < inner.size()) {
    const size_t i0 = i;
    const size_t j0 = j;
    int64_t left = i < outer.size() ? outer[i++] : 1;
    int64_t right = j < inner.size() ? inner[j++] : 1;
    while (left != right) {
      if (left < right) {
        left *= outer[i++];
      } else {
        right *= inner[j++];
      }
    }
    groups.push_back(
        {Shape(outer.begin() + i0, outer.begin() + i), Shape(inner.begin() + j0, inner.begin() + j)});
  }
  return groups;
}

IndexMap FlattenSets(absl::Span<const IndexMap> sets, absl::Span<const int64_t> extents) {
  IndexMap flat = IndexMap::Identity(1);
  for (size_t axis = 0; axis < sets.size(); ++axis) {
    const IndexMap& set = sets[axis];
    if (set.IsIdentity(extents[axis])) {
      flat = flat.Refine(extents[axis]);
      continue;
    }
    std::vector<Run> runs;
    for (int64_t row : Expand(flat)) {
      for (const Run& run : set.runs())
        runs.push_back({run.start + row * extents[axis], run.step, run.count});
    }
    flat = IndexMap(std::move(runs));
  }
  return flat;
}

std::vector<ProductSet> SplitSet(const IndexMap& flat, absl::Span<const int64_t> extents) {
  if (extents.empty()) return {{{}, flat}};  // one element, which stands at position 0
  if (extents.size() == 1) return {{{flat}, IndexMap::Identity(flat.size())}};
  const int64_t row = ElementCount(extents.subspan(1));
  RowGroups collect(row);
  int64_t position = 0;
  for (const Run& run : flat.runs()) {
    if (IsAdjacent(run)) {
      collect.AddRun(run.start, run.count, position);
    } else {
      for (int64_t i = 0; i < run.count; ++i) collect.AddRun(run.start + i * run.step, 1, position + i);
    }
    position += run.count;
  }
  std::vector<ProductSet> products;
  for (const Rows& rows : collect.Finish()) {
    for (const ProductSet& inner : SplitSet(rows.inner, extents.subspan(1))) {
      ProductSet product;
      product.axes.push_back(IndexMap(rows.rows));
      product.axes.insert(product.axes.end(), inner.axes.begin(), inner.axes.end());
      std::vector<IndexMap> positions;
      const int64_t length = rows.inner.size();
      for (const auto& [first, count] : rows.places) {
        if (inner.positions.IsIdentity(length)) {
          positions.push_back(IndexMap::Slice(first, count * length));
        } else {
          positions.push_back(Moved(IndexMap::Tile(inner.positions, count, length), first));
        }
      }
      product.positions = IndexMap::Join(positions);
      products.push_back(std::move(product));
    }
  }
  return products;
}

std::vector<IndexClass> ClassesOf(const IndexMap& region, absl::Span<const IndexMap> sets) {
  const std::vector<int64_t> indices = Expand(region);
  const auto place = [&](int64_t index) -> int64_t {  // -1 where the region lacks it
    const auto it = std::lower_bound(indices.begin(), indices.end(), index);
    return it == indices.end() || *it != index ? -1 : it - indices.begin();
  };
  std::vector<int64_t> class_of(indices.size(), 0);
  std::vector<std::vector<int64_t>> members(1);
  for (size_t s = 0; s < sets.size(); ++s) {
    // Every class splits into what the set holds, under a new number, and the rest.
    absl::flat_hash_map<int64_t, int64_t> renamed;
    for (int64_t index : Expand(sets[s])) {
      const int64_t at = place(index);
      if (at < 0) continue;
      const auto [it, fresh] = renamed.try_emplace(class_of[at], static_cast<int64_t>(members.size()));
      if (fresh) {
        members.push_back(members[class_of[at]]);
        members.back().push_back(static_cast<int64_t>(s));
      }
      class_of[at] = it->second;
    }
  }
  std::vector<std::vector<int64_t>> lists(members.size());
  std::vector<int64_t> order;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (lists[class_of[i]].empty()) order.push_back(class_of[i]);
    lists[class_of[i]].push_back(indices[i]);
  }
  std::vector<IndexClass> classes;
  for (int64_t number : order) classes.push_back({MapOf(lists[number]), members[number]});
  return classes;
}

}  // namespace twinforge
