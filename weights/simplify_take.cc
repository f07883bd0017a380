// Rules for take: it moves down to where the elements come from, and meets other takes.
#include <algorithm>
#include <cmath>
#include <optional>

#include "weights/pool.h"
#include "weights/rules.h"

namespace twinforge {
namespace {

// A take below a reshape may need a run for each copy of a block. Beyond this many the
// map costs more than the extra pass over the data: 256 heads of 256 are within it.
constexpr int64_t kMostRuns = 65536;

// A take of a concat that would fall into more pieces than this stays above it.
constexpr int64_t kMostPieces = 256;

int64_t Product(absl::Span<const int64_t> extents) {
  int64_t product = 1;
  for (int64_t extent : extents) product *= extent;
  return product;
}

int64_t RunsAfterRefining(const IndexMap& map, int64_t block) {
  if (block == 1) return static_cast<int64_t>(map.runs().size());
  int64_t runs = 0;
  for (const Run& run : map.runs()) runs += run.is_fill() || run.step == 1 ? 1 : run.count;
  return runs;
}

// ---- take of reshape

struct BelowReshape {
  int64_t axis;
  IndexMap map;
};

// The axis of `shape` lies within one axis of the operand, which it splits:
//
//   [64] -> [4, 16], take axis 1 by [0:16 fill:112]: take axis 0 by [0:16 fill:112] x 4
std::optional<BelowReshape> TakeOfSplit(const Shape& in, const Shape& out, int64_t axis,
                                        const IndexMap& map) {
  const int64_t after = Product(absl::MakeConstSpan(out).subspan(axis + 1));
  const int64_t whole = out[axis] * after;
  std::optional<int64_t> place;
  int64_t place_after = 0;
  int64_t in_after = 1;
  for (int64_t i = static_cast<int64_t>(in.size()) - 1; i >= 0; --i) {
    const bool inside = after % in_after == 0 && in[i] * in_after % whole == 0;
    const bool exact = inside && after == in_after && in[i] == out[axis];
    if (inside) {
      place = i;
      place_after = in_after;
    }
    if (exact) break;
    in_after *= in[i];
  }
  if (!place.has_value()) return std::nullopt;
  const int64_t block = after / place_after;
  const int64_t copies = in[*place] * place_after / whole;
  int64_t runs = 0;
  if (__builtin_mul_overflow(RunsAfterRefining(map, block), copies, &runs) || runs > kMostRuns)
    return std::nullopt;
  return BelowReshape{*place, IndexMap::Tile(map.Refine(block), copies, out[axis] * block)};
}

// The axis of `shape` is several axes of the operand merged, and the map moves only one
// of them:
//
//   [4, 16] -> [64], take axis 0 by [16:32 0:16 32:64]: take axis 0 by [1 0 2:4]
std::optional<BelowReshape> TakeOfMerge(const Shape& in, const Shape& out, int64_t axis,
                                        const IndexMap& map) {
  const int64_t after = Product(absl::MakeConstSpan(out).subspan(axis + 1));
  int64_t end = static_cast<int64_t>(in.size());  // merged axes are [begin, end)
  int64_t suffix = 1;
  while (end > 0 && suffix < after) suffix *= in[--end];
  if (suffix != after) return std::nullopt;
  int64_t begin = end;
  for (int64_t merged = 1; merged < out[axis];) {
    if (begin == 0) return std::nullopt;
    merged *= in[--begin];
    if (merged > out[axis]) return std::nullopt;
  }
  int64_t copies = 1;
  for (int64_t i = begin; i < end; copies *= in[i++]) {
    if (in[i] == 1) continue;
    const int64_t block = Product(absl::MakeConstSpan(in).subspan(i + 1, end - i - 1));
    if (map.size() % (copies * block) != 0) continue;
    const int64_t size = map.size() / copies;
    const IndexMap first = map.Range(0, size);
    const std::optional<IndexMap> coarse = first.Coarsen(block);
    if (!coarse.has_value() || coarse->max_index() >= in[i]) continue;
    // As many copies of as many runs as the whole map has at most: cheap to compare.
    if (copies > 1 && static_cast<int64_t>(first.runs().size()) * copies > 2 * kMostRuns) continue;
    if (copies == 1 || IndexMap::Tile(first, copies, in[i] * block) == map) return BelowReshape{i, *coarse};
  }
  return std::nullopt;
}

WeightPtr TakeOfReshape(const WeightPtr& x, int64_t axis, const IndexMap& map, double fill) {
  const WeightPtr& operand = x->child();
  std::optional<BelowReshape> below = TakeOfSplit(operand->shape(), x->shape(), axis, map);
  if (!below.has_value()) below = TakeOfMerge(operand->shape(), x->shape(), axis, map);
  if (!below.has_value()) return nullptr;
  Shape shape = x->shape();
  shape[axis] = map.size();
  return SimpleReshape(SimpleTake(operand, below->axis, std::move(below->map), fill), std::move(shape));
}

// ---- take of concat

// What a map reads, cut where it passes from one operand to another.
struct Piece {
  int64_t operand;  // -1: fill
  std::vector<Run> runs;
};

std::vector<Piece> CutAtOperands(const WeightPtr& concat, const IndexMap& map, int64_t most) {
  std::vector<int64_t> ends;
  int64_t end = 0;
  for (const WeightPtr& x : concat->children()) ends.push_back(end += x->shape()[concat->axis()]);
  std::vector<Piece> pieces;
  const auto add = [&pieces](int64_t operand, Run run) {
    if (pieces.empty() || pieces.back().operand != operand) pieces.push_back({operand, {}});
    pieces.back().runs.push_back(run);
  };
  for (const Run& run : map.runs()) {
    if (run.is_fill()) add(-1, run);
    for (int64_t done = 0; !run.is_fill() && done < run.count;) {
      if (static_cast<int64_t>(pieces.size()) > most) return pieces;
      const int64_t index = run.start + done * run.step;
      const int64_t at = std::upper_bound(ends.begin(), ends.end(), index) - ends.begin();
      const int64_t first = at == 0 ? 0 : ends[at - 1];
      int64_t taken = run.count - done;
      if (run.step > 0) taken = std::min(taken, (ends[at] - 1 - index) / run.step + 1);
      if (run.step < 0) taken = std::min(taken, (index - first) / -run.step + 1);
      add(at, {.start = index - first, .step = run.step, .count = taken});
      done += taken;
    }
  }
  return pieces;
}

WeightPtr TakeOfConcat(const WeightPtr& x, int64_t axis, const IndexMap& map, double fill) {
  std::vector<WeightPtr> xs;
  if (axis != x->axis()) {
    const auto take = [&](const WeightPtr& operand) { return SimpleTake(operand, axis, map, fill); };
    return SimpleConcat(x->axis(), OfEach(x->children(), take));
  }
  const int64_t most = std::max(kMostPieces, 4 * static_cast<int64_t>(x->children().size()));
  std::vector<Piece> pieces = CutAtOperands(x, map, most);
  if (static_cast<int64_t>(pieces.size()) > most) return nullptr;
  for (Piece& piece : pieces) {
    IndexMap part(std::move(piece.runs));
    Shape shape = x->shape();
    shape[axis] = part.size();
    xs.push_back(piece.operand < 0 ? SimpleFill(fill, x->dtype(), std::move(shape))
                                   : SimpleTake(x->child(piece.operand), axis, std::move(part), 0));
  }
  return SimpleConcat(axis, std::move(xs));
}

// ---- take of take

// One map has no fill places, or both fill alike.
bool FillsAgree(const IndexMap& a, double fill_a, const IndexMap& b, double fill_b) {
  return !a.has_fill() || !b.has_fill() || SameBits(fill_a, fill_b);
}

WeightPtr TakeOfTake(const WeightPtr& x, int64_t axis, const IndexMap& map, double fill) {
  if (axis == x->axis()) {
    IndexMap composed = map.After(x->map());
    // Inner fill that the outer map does not read is no obstacle.
    const bool inner_fill_read =
        composed.has_fill() && x->map().has_fill() && (!map.has_fill() || !SameBits(fill, x->fill()));
    if (inner_fill_read && map.has_fill()) {
      int64_t outer = 0, both = 0;
      for (const Run& run : map.runs()) outer += run.is_fill() ? run.count : 0;
      for (const Run& run : composed.runs()) both += run.is_fill() ? run.count : 0;
      if (outer != both) return nullptr;
      return SimpleTake(x->child(), axis, std::move(composed), fill);
    }
    return SimpleTake(x->child(), axis, std::move(composed), map.has_fill() ? fill : x->fill());
  }
  // Takes along different axes stand with the lowest axis innermost. At a corner that both
  // fill, the outer one's value shows, so they change places only where the fills agree.
  if (axis < x->axis() && FillsAgree(map, fill, x->map(), x->fill())) {
    return SimpleTake(SimpleTake(x->child(), axis, map, fill), x->axis(), x->map(), x->fill());
  }
  return nullptr;
}

// ---- take of arithmetic

// A value that cast to x's dtype gives `fill`.
std::optional<double> FillBelowCast(const WeightPtr& x, double fill) {
  const double below = RoundTo(x->child()->dtype(), fill);
  if (!SameBits(RoundTo(x->dtype(), below), fill)) return std::nullopt;
  return below;
}

// A value that x's arithmetic turns into `fill`.
std::optional<double> FillBelowMap(const WeightPtr& x, double fill) {
  const double constant = x->child(1)->fill();
  double inverse = fill;
  switch (x->map_fn()) {
    case MapFn::kAdd:
      inverse = fill - constant;
      break;
    case MapFn::kSub:
      inverse = fill + constant;
      break;
    case MapFn::kMul:
      inverse = fill / constant;
      break;
    case MapFn::kDiv:
      inverse = fill * constant;
      break;
  }
  for (double candidate : {inverse, fill, -fill}) {
    const double below = RoundTo(x->dtype(), candidate);
    const double above = RoundTo(x->dtype(), ApplyMap(x->map_fn(), below, constant));
    if (below == below && SameBits(above, fill)) return below;
  }
  return std::nullopt;
}

WeightPtr TakeOfCast(const WeightPtr& x, int64_t axis, const IndexMap& map, double fill) {
  const std::optional<double> below = map.has_fill() ? FillBelowCast(x, fill) : 0;
  if (!below.has_value()) return nullptr;
  return SimpleCast(SimpleTake(x->child(), axis, map, *below), x->dtype());
}

WeightPtr TakeOfMap(const WeightPtr& x, int64_t axis, const IndexMap& map, double fill) {
  if (!IsMapByConstant(x)) return nullptr;
  const std::optional<double> below = map.has_fill() ? FillBelowMap(x, fill) : 0;
  if (!below.has_value()) return nullptr;
  return SimpleMap(x->map_fn(), SimpleTake(x->child(), axis, map, *below), x->child(1));
}

WeightPtr TakeOfFill(const WeightPtr& x, int64_t axis, const IndexMap& map, double fill) {
  Shape shape = x->shape();
  if (!map.has_fill() || SameBits(fill, x->fill())) {
    shape[axis] = map.size();
    return SimpleFill(x->fill(), x->dtype(), std::move(shape));
  }
  // Two constants along one axis: all places of the operand are alike, so one is enough.
  shape[axis] = 1;
  std::vector<Run> runs = map.runs();
  for (Run& run : runs) {
    if (!run.is_fill()) run = {.start = 0, .step = 0, .count = run.count};
  }
  return WeightPool::Take(SimpleFill(x->fill(), x->dtype(), std::move(shape)), axis,
                          IndexMap(std::move(runs)), fill);
}

// What the take equals once its operand has been looked at; null if the take stands.
WeightPtr TakeBelow(const WeightPtr& x, int64_t axis, const IndexMap& map, double fill) {
  switch (x->kind()) {
    case WeightKind::kFill:
      return TakeOfFill(x, axis, map, fill);
    case WeightKind::kTake:
      return TakeOfTake(x, axis, map, fill);
    case WeightKind::kTranspose:
      return SimpleTranspose(SimpleTake(x->child(), x->perm()[axis], map, fill), x->perm());
    case WeightKind::kReshape:
      return TakeOfReshape(x, axis, map, fill);
    case WeightKind::kConcat:
      return TakeOfConcat(x, axis, map, fill);
    case WeightKind::kCast:
      return TakeOfCast(x, axis, map, fill);
    case WeightKind::kMap:
      return TakeOfMap(x, axis, map, fill);
    case WeightKind::kSource:
    case WeightKind::kStack:
    case WeightKind::kContract:
    case WeightKind::kStat:
    case WeightKind::kGroup:
      return nullptr;
  }
  return nullptr;
}

}  // namespace

WeightPtr SimpleTake(const WeightPtr& x, int64_t axis, IndexMap map, double fill) {
  if (map.IsIdentity(x->shape()[axis])) return x;
  fill = map.has_fill() ? RoundTo(x->dtype(), fill) : 0;
  Shape shape = x->shape();
  shape[axis] = map.size();
  const bool all_fill = map.runs().size() == 1 && map.has_fill();
  if (all_fill || ElementCount(shape) == 0) return SimpleFill(fill, x->dtype(), std::move(shape));
  if (WeightPtr below = TakeBelow(x, axis, map, fill)) return below;
  return WeightPool::Take(x, axis, std::move(map), fill);
}

}  // namespace twinforge
