// The moving verbs of the walk: nothing here looks at a value.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "weights/read_walk.h"

namespace twinforge {
namespace {

// A run at least this long is worth a read of its own; shorter ones are staged.
constexpr int64_t kDirectRunBytes = 16 << 10;
// Extent of a staged block along the axis that the destination has fastest: so long
// are the pieces in which a transpose writes.
constexpr int64_t kStageFast = 256;
// Gaps are read along with short runs while they cost no more than this factor.
constexpr int64_t kGapFactor = 4;
// Below this a gap is cheaper to read than to skip.
constexpr int64_t kGapRunBytes = 1 << 10;
// Takes whose runs are shorter than this read the span they cover first.
constexpr int64_t kTakeRunBytes = 4 << 10;

// How much of each axis a staged block holds, for axes of a stored tensor.
Ints StageBlock(const StridedAxes& axes, int64_t element_bytes) {
  const int64_t budget = kBlockBytes / element_bytes;
  const int64_t last = static_cast<int64_t>(axes.size()) - 1;
  int64_t fast = last;
  for (int64_t i = 0; i < last; ++i) {
    if (std::abs(axes[i].to) < std::abs(axes[fast].to)) fast = i;
  }
  Ints block(axes.size(), 1);
  block[fast] = std::min(axes[fast].size, kStageFast);
  int64_t held = block[fast];
  const auto widen = [&](int64_t i) {
    held /= block[i];
    block[i] = std::min(axes[i].size, std::max(block[i], budget / held));
    held *= block[i];
  };
  widen(last);
  for (int64_t i = last - 1; i >= 0 && block[i + 1] == axes[i + 1].size; --i) widen(i);
  widen(fast);
  return block;
}

// A piece of a reshape's operand: where it starts, how far it reaches, and where it goes.
struct Piece {
  Ints start;
  Ints size;
  Ints stride;
  int64_t offset = 0;
};

// Row-major positions [first, first + count) of a tensor of extents `shape`, as boxes.
// Neighbouring positions are `unit` apart in the destination.
//
//   shape {4, 3}, positions 2..9:   . . x      head: rest of row 0
//                                   x x x      body: whole rows
//                                   x x x
//                                   x . .      tail: beginning of row 3
void CutRange(absl::Span<const int64_t> shape, int64_t first, int64_t count, int64_t unit, const Piece& outer,
              std::vector<Piece>& out) {
  const size_t axis = outer.start.size();
  if (axis == shape.size()) {
    out.push_back(outer);
    return;
  }
  int64_t offset = outer.offset;
  const int64_t inner = Product(shape.subspan(axis + 1));
  const auto descend = [&](int64_t row, int64_t rows, int64_t from, int64_t length) {
    Piece part = outer;
    part.offset = offset;
    part.start.push_back(row);
    part.size.push_back(rows);
    part.stride.push_back(inner * unit);
    CutRange(shape, from, length, unit, part, out);
    offset += rows * length * unit;
    count -= rows * length;
  };
  int64_t row = first / inner;
  if (const int64_t into = first % inner; into != 0 || count < inner) {
    descend(row++, 1, into, std::min(count, inner - into));
  }
  if (count >= inner) {
    const int64_t rows = count / inner;
    descend(row, rows, 0, inner);
    row += rows;
  }
  if (count > 0) descend(row, 1, 0, count);
}

// The box (start, size) over axes of extents `shape`, which together are one group of a
// reshape, as pieces of the operand's axes `inner_shape`.
std::vector<Piece> CutGroup(absl::Span<const int64_t> shape, absl::Span<const int64_t> start,
                            absl::Span<const int64_t> size, absl::Span<const int64_t> stride,
                            absl::Span<const int64_t> inner_shape) {
  // The longest run of row-major neighbours that are also evenly spaced in the destination.
  int64_t first = 0;
  int64_t length = 1;
  int64_t unit = 1;
  int64_t extent = 1;
  int64_t outer = static_cast<int64_t>(shape.size());
  for (; outer > 0; --outer) {
    const int64_t i = outer - 1;
    if (size[i] != 1) {
      if (length != extent || (length > 1 && stride[i] != unit * length)) break;
      if (length == 1) unit = stride[i];
      length *= size[i];
    }
    first += start[i] * extent;
    extent *= shape[i];
  }
  StridedAxes rows;
  const Ints positions = DenseStrides(shape);
  for (int64_t i = 0; i < outer; ++i) {
    first += start[i] * positions[i];
    rows.push_back({size[i], positions[i], stride[i]});
  }
  std::vector<Piece> pieces;
  ForEachOffset(rows, [&](int64_t position, int64_t offset) {
    CutRange(inner_shape, first + position, length, unit, Piece{{}, {}, {}, offset}, pieces);
  });
  return pieces;
}

// Drops pieces of the same size and strides as an earlier one.
void KeepDistinct(std::vector<Piece>& pieces) {
  std::vector<Piece> distinct;
  for (const Piece& piece : pieces) {
    const bool known = std::any_of(distinct.begin(), distinct.end(), [&](const Piece& other) {
      return other.size == piece.size && other.stride == piece.stride;
    });
    if (!known) distinct.push_back(piece);
  }
  pieces = std::move(distinct);
}

// One row of a take: its places gathered from `row`, whose first element is index `low`.
template <typename T>
void GatherRow(const IndexMap& map, int64_t low, T fill, const T* row, T* out) {
  for (const Run& run : map.runs()) {
    const T* in = row + (run.start - low);
    if (run.is_fill()) {
      std::fill_n(out, run.count, fill);
    } else if (run.step == 1) {
      std::memcpy(out, in, run.count * sizeof(T));
    } else {
      for (int64_t i = 0; i < run.count; ++i) out[i] = in[i * run.step];
    }
    out += run.count;
  }
}

template <typename T>
void GatherRows(const IndexMap& map, int64_t low, const std::byte* fill, const StridedAxes& rows,
                const std::byte* from, std::byte* to) {
  T value;
  std::memcpy(&value, fill, sizeof(T));
  ForEachOffset(rows, [&](int64_t in, int64_t out) {
    GatherRow(map, low, value, reinterpret_cast<const T*>(from) + in, reinterpret_cast<T*>(to) + out);
  });
}

// The runs and fill of `map` from a dense block of extents `size`, along `axis`, which
// begins at index `low`, to their places.
void Gather(const IndexMap& map, int64_t axis, int64_t low, const std::byte* fill, const Ints& size,
            const Target& from, const Target& to, int64_t bytes) {
  if (axis + 1 == static_cast<int64_t>(size.size()) && to.stride[axis] == 1) {  // row after row
    StridedAxes rows;
    for (int64_t i = 0; i < axis; ++i) rows.push_back({size[i], from.stride[i], to.stride[i]});
    switch (bytes) {
      case 1:
        return GatherRows<uint8_t>(map, low, fill, rows, from.base, At(to, bytes));
      case 2:
        return GatherRows<uint16_t>(map, low, fill, rows, from.base, At(to, bytes));
      case 4:
        return GatherRows<uint32_t>(map, low, fill, rows, from.base, At(to, bytes));
      default:
        return GatherRows<uint64_t>(map, low, fill, rows, from.base, At(to, bytes));
    }
  }
  Ints part = size;
  Ints stride = from.stride;
  Target at = to;
  for (const Run& run : map.runs()) {
    part[axis] = run.count;
    stride[axis] = from.stride[axis] * run.step;
    if (run.is_fill()) {
      FillStrided(part, fill, At(at, bytes), to.stride, bytes);
    } else {
      const std::byte* in = from.base + (run.start - low) * from.stride[axis] * bytes;
      CopyStrided(part, in, stride, At(at, bytes), to.stride, bytes);
    }
    at.offset += run.count * to.stride[axis];
  }
}

// `value` as an element. Zero is all bits zero in every type that has one, complex
// numbers among them, which know no other fill.
struct Element {
  Element(DType dtype, double value) {
    if (value != 0 || std::signbit(value) || dtype == DType::kF8E8M0) FromDouble(dtype, value, bytes);
  }
  std::byte bytes[8] = {};
};

}  // namespace

absl::Status Walk::VisitSource(const Weight& w, const Region& region, const Target& to) {
  const Ints stored = DenseStrides(w.shape());
  int64_t first = 0;
  for (int64_t i = 0; i < w.rank(); ++i) first += region.start[i] * stored[i];
  StridedAxes axes = Coalesce(region.size, stored, to.stride);
  if (axes.empty()) axes.push_back({1, 1, 1});
  const StridedAxis run = axes.back();
  const int64_t bytes = ElementBytes(w.dtype());
  const bool direct =
      run.from == 1 && run.to == 1 && (axes.size() == 1 || run.size * bytes >= kDirectRunBytes);
  if (!direct) return VisitSourceStaged(w, first, axes, to);
  if (measuring()) return absl::OkStatus();
  axes.pop_back();
  absl::Status status;
  std::byte* out = At(to, bytes);
  ForEachOffset(axes, [&](int64_t from, int64_t offset) {
    if (status.ok()) status = reader_->ReadElements(w, first + from, run.size, out + offset * bytes);
  });
  return status;
}

// Short runs: a block of stored elements is read densely, then spread to its places.
// Where gaps between runs are small the block holds them too and is read in one piece.
absl::Status Walk::VisitSourceStaged(const Weight& w, int64_t first, const StridedAxes& axes,
                                     const Target& to) {
  const int64_t bytes = ElementBytes(w.dtype());
  const Ints block = StageBlock(axes, bytes);
  Ints extent, from, onto;
  int64_t span = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    extent.push_back(axes[i].size);
    from.push_back(axes[i].from);
    onto.push_back(axes[i].to);
    span += (block[i] - 1) * axes[i].from;
  }
  const int64_t count = Product(block);
  const int64_t run = axes.back().from == 1 ? block.back() : 1;
  const bool with_gaps = span > count && run * bytes < kGapRunBytes && span <= kGapFactor * count;
  const Held staged(room_, (with_gaps ? span : count) * bytes);
  if (measuring()) return absl::OkStatus();

  const Target out = {At(to, bytes), 0, onto};
  return ForEachBlock(extent, block, Blocks::kAll, [&](const Ints& start, const Ints& size) -> absl::Status {
    int64_t at = first;
    for (size_t i = 0; i < size.size(); ++i) at += start[i] * from[i];
    const Ints dense = DenseStrides(size);
    if (with_gaps) {
      int64_t length = 1;
      for (size_t i = 0; i < size.size(); ++i) length += (size[i] - 1) * from[i];
      TWIN_RETURN_IF_ERROR(reader_->ReadElements(w, at, length, staged.get()));
    } else {
      StridedAxes runs = Coalesce(size, from, dense);
      int64_t length = 1;
      if (!runs.empty() && runs.back().from == 1) {
        length = runs.back().size;
        runs.pop_back();
      }
      absl::Status status;
      ForEachOffset(runs, [&](int64_t stored, int64_t place) {
        if (!status.ok()) return;
        status = reader_->ReadElements(w, at + stored, length, staged.get() + place * bytes);
      });
      TWIN_RETURN_IF_ERROR(status);
    }
    CopyStrided(size, staged.get(), with_gaps ? from : dense, At(Shifted(out, start), bytes), onto, bytes);
    return absl::OkStatus();
  });
}

void Walk::Fill(DType dtype, double value, absl::Span<const int64_t> size, const Target& to) {
  if (measuring()) return;
  FillStrided(size, Element(dtype, value).bytes, At(to, ElementBytes(dtype)), to.stride, ElementBytes(dtype));
}

// Member by member; measuring looks at one, since all are alike.
absl::Status Walk::VisitStack(const Weight& w, const Region& region, const Target& to) {
  const Region inner = {Ints(region.start.begin() + 1, region.start.end()),
                        Ints(region.size.begin() + 1, region.size.end())};
  Target there = {to.base, to.offset, Ints(to.stride.begin() + 1, to.stride.end())};
  for (int64_t i = 0; i < (measuring() ? 1 : region.size[0]); ++i) {
    const WeightPtr member = StackMember(w, region.start[0] + i);
    TWIN_RETURN_IF_ERROR(Visit(*member, inner, there));
    there.offset += to.stride[0];
  }
  return absl::OkStatus();
}

absl::Status Walk::VisitFill(const Weight& w, const Region& region, const Target& to) {
  Fill(w.dtype(), w.fill(), region.size, to);
  return absl::OkStatus();
}

absl::Status Walk::VisitTake(const Weight& w, const Region& region, const Target& to) {
  const int64_t axis = w.axis();
  const bool whole = region.start[axis] == 0 && region.size[axis] == w.map().size();
  IndexMap part;
  if (!whole) part = w.map().Range(region.start[axis], region.size[axis]);
  const IndexMap& map = whole ? w.map() : part;
  int64_t reads = 0;
  int64_t places = 0;
  int64_t low = INT64_MAX;
  int64_t high = -1;
  for (const Run& run : map.runs()) {
    if (run.is_fill()) continue;
    const int64_t last = run.start + (run.count - 1) * run.step;
    reads += run.count == 1 || run.step == 1 || run.step == -1 ? 1 : run.count;
    places += run.count;
    low = std::min({low, run.start, last});
    high = std::max({high, run.start, last});
  }
  const int64_t bytes = ElementBytes(w.dtype());
  const int64_t place_bytes = Product(absl::MakeSpan(region.size).subspan(axis + 1)) * bytes;
  const bool short_runs = reads > 1 && places * place_bytes / reads < kTakeRunBytes;
  const bool computed = reads > 1 && !OnlyMoves(w.child());
  const bool near_by = high - low + 1 <= kGapFactor * places;
  if ((short_runs || computed) && near_by) return VisitTakeStaged(w, map, region, to);
  FillRuns(w, map, region, to);
  return VisitTakeRuns(w, map, region, to);
}

void Walk::FillRuns(const Weight& w, const IndexMap& map, const Region& region, const Target& to) {
  if (measuring()) return;
  const int64_t axis = w.axis();
  Ints size = region.size;
  int64_t place = 0;
  for (const Run& run : map.runs()) {
    if (run.is_fill()) {
      size[axis] = run.count;
      Target at = to;
      at.offset += place * to.stride[axis];
      Fill(w.dtype(), w.fill(), size, at);
    }
    place += run.count;
  }
}

// One read of the operand per run; a run of step -1 is read forwards and written backwards.
absl::Status Walk::VisitTakeRuns(const Weight& w, const IndexMap& map, const Region& region,
                                 const Target& to) {
  const int64_t axis = w.axis();
  Region inner = region;
  Target at = to;
  const bool alike = BlocksOf(*w.child()) == Blocks::kOneOfEachSize;
  Ints seen;
  int64_t place = 0;
  for (const Run& run : map.runs()) {
    if (run.is_fill()) {
      place += run.count;
      continue;
    }
    const bool adjacent = run.count == 1 || run.step == 1 || run.step == -1;
    const bool backwards = run.count > 1 && run.step == -1;
    if (alike) {  // measuring: one run of each length and direction is enough
      const int64_t length = backwards ? -run.count : adjacent ? run.count : 1;
      if (std::find(seen.begin(), seen.end(), length) != seen.end()) continue;
      seen.push_back(length);
    }
    for (int64_t i = 0; i < run.count; i += inner.size[axis]) {
      if (alike && i > 0) break;
      inner.size[axis] = adjacent ? run.count : 1;
      inner.start[axis] = backwards ? run.start - run.count + 1 : run.start + i * run.step;
      at.stride[axis] = backwards ? -to.stride[axis] : to.stride[axis];
      at.offset = to.offset + (place + (backwards ? run.count - 1 : i)) * to.stride[axis];
      TWIN_RETURN_IF_ERROR(Visit(*w.child(), inner, at));
    }
    place += run.count;
  }
  return absl::OkStatus();
}

// Many short runs close together: the span that they cover is read in blocks of outer
// rows, then gathered in memory.
absl::Status Walk::VisitTakeStaged(const Weight& w, const IndexMap& map, const Region& region,
                                   const Target& to) {
  const int64_t axis = w.axis();
  const int64_t bytes = ElementBytes(w.dtype());
  int64_t low = INT64_MAX;
  int64_t high = -1;
  for (const Run& run : map.runs()) {
    if (run.is_fill()) continue;
    const int64_t last = run.start + (run.count - 1) * run.step;
    low = std::min({low, run.start, last});
    high = std::max({high, run.start, last});
  }
  Ints covered = region.size;
  covered[axis] = high - low + 1;
  const int64_t row = Product(absl::MakeSpan(covered).subspan(axis));
  const bool streams = StreamsByRows(*w.child());
  Ints block = covered;
  const Ints outer = RowBlock(absl::MakeSpan(covered).first(axis),
                              streams ? std::max<int64_t>(1, kBlockBytes / (row * bytes)) : INT64_MAX);
  std::copy(outer.begin(), outer.end(), block.begin());

  const Element fill(w.dtype(), w.fill());
  const Held staged(room_, Product(block) * bytes);
  return ForEachBlock(covered, block, BlocksOf(*w.child()),
                      [&](const Ints& start, const Ints& size) -> absl::Status {
                        Region inner = {region.start, size};
                        inner.start[axis] = low;
                        for (int64_t i = 0; i < axis; ++i) inner.start[i] += start[i];
                        const Target dense = DenseTarget(staged.get(), size);
                        TWIN_RETURN_IF_ERROR(Visit(*w.child(), inner, dense));
                        if (measuring()) return absl::OkStatus();
                        Gather(map, axis, low, fill.bytes, size, dense, Shifted(to, start), bytes);
                        return absl::OkStatus();
                      });
}

absl::Status Walk::VisitTranspose(const Weight& w, const Region& region, const Target& to) {
  Region inner = region;
  Target turned = to;
  for (int64_t i = 0; i < w.rank(); ++i) {
    const int64_t axis = w.perm()[i];
    inner.start[axis] = region.start[i];
    inner.size[axis] = region.size[i];
    turned.stride[axis] = to.stride[i];
  }
  return Visit(*w.child(), inner, turned);
}

absl::Status Walk::VisitConcat(const Weight& w, const Region& region, const Target& to) {
  const int64_t axis = w.axis();
  const int64_t begin = region.start[axis];
  const int64_t end = begin + region.size[axis];
  int64_t offset = 0;  // of the operand along the axis
  for (const WeightPtr& x : w.children()) {
    const int64_t extent = x->shape()[axis];
    const int64_t low = std::max(begin, offset);
    const int64_t high = std::min(end, offset + extent);
    if (low < high) {
      Region inner = region;
      inner.start[axis] = low - offset;
      inner.size[axis] = high - low;
      Target at = to;
      at.offset += (low - begin) * to.stride[axis];
      TWIN_RETURN_IF_ERROR(Visit(*x, inner, at));
    }
    offset += extent;
  }
  return absl::OkStatus();
}

// Result and operand are cut into groups of axes with equal products; each group is cut
// on its own, and the operand's boxes are all combinations of the groups' pieces.
absl::Status Walk::VisitReshape(const Weight& w, const Region& region, const Target& to) {
  const Shape& shape = w.shape();
  const Shape& inner = w.child()->shape();
  const bool alike = BlocksOf(*w.child()) == Blocks::kOneOfEachSize;
  std::vector<std::vector<Piece>> groups;
  size_t i = 0;
  size_t j = 0;
  while (i < shape.size() || j < inner.size()) {
    const size_t i0 = i;
    const size_t j0 = j;
    int64_t left = i < shape.size() ? shape[i++] : 1;
    int64_t right = j < inner.size() ? inner[j++] : 1;
    while (left != right) {
      if (left < right) {
        left *= shape[i++];
      } else {
        right *= inner[j++];
      }
    }
    const absl::Span<const int64_t> start = absl::MakeSpan(region.start).subspan(i0, i - i0);
    const absl::Span<const int64_t> size = absl::MakeSpan(region.size).subspan(i0, i - i0);
    const absl::Span<const int64_t> stride = absl::MakeSpan(to.stride).subspan(i0, i - i0);
    groups.push_back(CutGroup(absl::MakeSpan(shape).subspan(i0, i - i0), start, size, stride,
                              absl::MakeSpan(inner).subspan(j0, j - j0)));
    if (alike) KeepDistinct(groups.back());
  }
  Ints counts;
  for (const auto& pieces : groups) counts.push_back(static_cast<int64_t>(pieces.size()));
  return ForEachBlock(counts, Ints(counts.size(), 1), Blocks::kAll, [&](const Ints& choice, const Ints&) {
    Region part;
    Target at = {to.base, to.offset, {}};
    for (size_t g = 0; g < groups.size(); ++g) {
      const Piece& piece = groups[g][choice[g]];
      part.start.insert(part.start.end(), piece.start.begin(), piece.start.end());
      part.size.insert(part.size.end(), piece.size.begin(), piece.size.end());
      at.stride.insert(at.stride.end(), piece.stride.begin(), piece.stride.end());
      at.offset += piece.offset;
    }
    return Visit(*w.child(), part, at);
  });
}

}  // namespace twinforge
