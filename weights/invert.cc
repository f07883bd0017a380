// How it works. The walk goes from a twin's tensor down to its sources and carries a
// *path*: for the node it stands at, which indices of each axis are known, and a program
// over the twin that yields exactly those.
//
//   twin t = take(s, 0, [0:3 fill:1])        at t: known {0..3}, back = t
//                                            at s: known {0..2}, back = take(t, 0, [0:3])
//
// Known sets are products over axes. A reshape that splits an axis may turn one product
// into several; then the path forks. What arrives at a source is a piece of it; pieces
// are put together axis by axis, by classes of indices that the same pieces hold.
#include "weights/invert.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/parallel.h"
#include "weights/build.h"
#include "weights/index_set.h"
#include "weights/invert_pieces.h"
#include "weights/read.h"
#include "weights/simplify.h"

namespace twinforge {
namespace {

using namespace inverting;

struct Entry {
  WeightPtr source;
  std::vector<Path> pieces;
  std::vector<std::string> consumers;
  std::string
      consumed;  // a verb that used it up, in words: of the first tensor by name, in whatever order they come
};

// What stands where a constant would be read: constants read nothing.
class NoReader : public TensorReader {
 public:
  absl::Status ReadElements(const Weight& source, int64_t, int64_t, std::byte*) const override {
    return absl::InternalError(absl::StrCat("a constant reads ", source.source_name()));
  }
};

// Whether every element of constant `y` is finite and not zero, so that multiplying by
// it can be undone.
bool IsDivisor(const WeightPtr& y) {
  const auto good = [](double v) { return v != 0 && std::isfinite(v); };
  if (y->kind() == WeightKind::kFill) return good(y->fill());
  constexpr int64_t kMost = int64_t{1} << 24;
  if (y->dtype() == DType::kC64 || y->element_count() > kMost) return false;
  const int64_t bytes = ElementBytes(y->dtype());
  std::vector<std::byte> elements(y->element_count() * bytes);
  Scratch scratch;
  if (!Read(y, WholeBox(y->shape()), NoReader(), elements.data(), scratch).ok()) return false;
  for (int64_t i = 0; i < y->element_count(); ++i) {
    if (!good(ToDouble(y->dtype(), elements.data() + i * bytes))) return false;
  }
  return true;
}

MapFn InverseOf(MapFn fn) {
  switch (fn) {
    case MapFn::kAdd:
      return MapFn::kSub;
    case MapFn::kSub:
      return MapFn::kAdd;
    case MapFn::kMul:
      return MapFn::kDiv;
    case MapFn::kDiv:
      return MapFn::kMul;
  }
  return fn;
}

// More verbs of a way back; of no way back they make none.
WeightPtr Reshaped(const WeightPtr& x, const Shape& shape) { return x == nullptr ? x : Reshape(x, shape); }
WeightPtr Casted(const WeightPtr& x, DType dtype) { return x == nullptr ? x : Cast(x, dtype); }
WeightPtr Transposed(const WeightPtr& x, std::vector<int64_t> perm) {
  return x == nullptr ? x : Transpose(x, std::move(perm));
}

// How a source comes home, as far as that is known.
struct WayHome {
  bool known = false;
  WeightPtr program;  // null where none is wanted
  Fate fate = Fate::kMoved;
};

// Arithmetic with another source tensor, put off until that one's way back is known.
struct Pending {
  WeightPtr w;
  Path path;
  std::string twin;
};

// What a walk finds out about a source, put off so that many may walk at once.
struct Finding {
  Entry* entry;
  enum { kConsumer, kPiece, kConsumed } kind;
  Path piece;        // kPiece
  std::string text;  // kConsumer: the twin; kConsumed: the verb that used it up, in words
};

class Walker {
 public:
  Walker(absl::flat_hash_map<std::string, Entry>& entries, bool inverses)
      : entries_(entries), inverses_(inverses) {}

  void WalkTwin(const NamedProgram& twin) {
    twin_ = twin.name;
    for (const std::string& name : SourcesOf(twin.program)) {
      if (Entry* entry = Find(name)) findings_.push_back({entry, Finding::kConsumer, {}, twin_});
    }
    if (twin.program->element_count() == 0) return;  // nothing to hold
    WeightPtr back = inverses_ ? Source(twin.name, twin.program->dtype(), twin.program->shape()) : nullptr;
    Walk(twin.program, {std::move(back), Known(twin.program->rank()), Fate::kMoved});
  }

  // Files what was found, in the order in which it was.
  void File() {
    for (Finding& found : findings_) {
      switch (found.kind) {
        case Finding::kConsumer:
          found.entry->consumers.push_back(std::move(found.text));
          break;
        case Finding::kPiece:
          found.entry->pieces.push_back(std::move(found.piece));
          break;
        case Finding::kConsumed:
          if (found.entry->consumed.empty() || found.text < found.entry->consumed)
            found.entry->consumed = std::move(found.text);
          break;
      }
    }
    findings_.clear();
  }

  // Takes over what `other` found and put off.
  void Join(Walker&& other) {
    std::move(other.findings_.begin(), other.findings_.end(), std::back_inserter(findings_));
    std::move(other.pending_.begin(), other.pending_.end(), std::back_inserter(pending_));
  }

  // Undoes what was put off, as far as `home` knows the other operands' sources; what
  // remains has used up its sources.
  template <typename Home>
  void WalkPending(Home home) {
    for (bool progress = true; progress && !pending_.empty();) {
      progress = false;
      for (Pending& one : std::exchange(pending_, {})) {
        twin_ = one.twin;
        Bindings bindings;
        Fate worst = Fate::kRescaled;
        bool found = true;
        for (const std::string& name : SourcesOf(one.w->child(1))) {
          const WayHome way = home(name);
          found = found && way.known;
          worst = std::max(worst, way.fate);
          if (inverses_) bindings.push_back({name, way.program});
        }
        if (!found) {
          pending_.push_back(std::move(one));
          continue;
        }
        progress = true;
        one.path.fate = std::max(one.path.fate, worst);
        Undo(one.w, inverses_ ? Substitute(one.w->child(1), bindings) : nullptr, std::move(one.path));
        File();
      }
    }
    for (const Pending& one : pending_) {
      twin_ = one.twin;
      Consume(one.w, "arithmetic with another tensor");
    }
    File();
  }

 private:
  // Null for a source that nobody asks about.
  Entry* Find(const std::string& name) const {
    const auto it = entries_.find(name);
    return it == entries_.end() ? nullptr : &it->second;
  }

  void Found(const std::string& name, Path path) {
    if (Entry* entry = Find(name)) findings_.push_back({entry, Finding::kPiece, std::move(path), ""});
  }

  void Walk(const WeightPtr& w, Path path) {
    switch (w->kind()) {
      case WeightKind::kSource:
        return Found(w->source_name(), std::move(path));
      case WeightKind::kStack:
        return WalkStack(*w, path);
      case WeightKind::kFill:
        return;
      case WeightKind::kTake:
        return WalkTake(w, std::move(path));
      case WeightKind::kTranspose:
        return WalkTranspose(w, std::move(path));
      case WeightKind::kReshape:
        return WalkReshape(w, std::move(path));
      case WeightKind::kConcat:
        return WalkConcat(w, path);
      case WeightKind::kCast:
        if (!IsLossless(w->child()->dtype(), w->dtype())) path.fate = std::max(path.fate, Fate::kRounded);
        path.back = Casted(path.back, w->child()->dtype());
        return Walk(w->child(), std::move(path));
      case WeightKind::kMap:
        return WalkMap(w, std::move(path));
      case WeightKind::kContract:
        return Consume(w, "a contraction");
      case WeightKind::kStat:
        return Consume(w, "a statistic");
      case WeightKind::kGroup:
        return Consume(w, "a function of groups");
    }
  }

  void Consume(const WeightPtr& w, absl::string_view how) {
    for (const std::string& name : SourcesOf(w)) {
      Entry* entry = Find(name);
      if (entry == nullptr) continue;
      findings_.push_back(
          {entry, Finding::kConsumed, {}, absl::StrCat("it reaches \"", twin_, "\" only through ", how)});
    }
  }

  void WalkStack(const Weight& w, const Path& path) {
    const IndexMap& known = path.known[0];
    for (int64_t i = 0, at = 0; i < w.shape()[0]; ++i) {
      if (!IsWhole(known) && (at == known.size() || known.At(at) != i)) continue;
      const int64_t position = at++;
      Path part = {nullptr, {path.known.begin() + 1, path.known.end()}, path.fate};
      if (path.back != nullptr) part.back = Index(path.back, 0, position);
      Found(StackMemberName(w, i), std::move(part));
    }
  }

  void WalkTake(const WeightPtr& w, Path path) {
    const int64_t axis = w->axis();
    const IndexMap& known = path.known[axis];
    const int64_t extent = w->child()->shape()[axis];
    Reached reached = ReachedThrough(IsWhole(known) ? w->map() : known.After(w->map()), extent);
    if (reached.indices.size() == 0) return;
    path.back = Select(path.back, axis, reached.positions);
    path.known[axis] = Kept(std::move(reached.indices), extent);
    Walk(w->child(), std::move(path));
  }

  void WalkTranspose(const WeightPtr& w, Path path) {
    std::vector<int64_t> inverse(w->rank());
    Known known(w->rank());
    for (int64_t i = 0; i < w->rank(); ++i) {
      inverse[w->perm()[i]] = i;
      known[w->perm()[i]] = std::move(path.known[i]);
    }
    path.known = std::move(known);
    path.back = Transposed(path.back, std::move(inverse));
    Walk(w->child(), std::move(path));
  }

  void WalkConcat(const WeightPtr& w, const Path& path) {
    const int64_t axis = w->axis();
    const IndexMap& known = path.known[axis];
    const bool all = IsWhole(known);
    int64_t offset = 0;
    for (const WeightPtr& x : w->children()) {
      const int64_t extent = x->shape()[axis];
      const int64_t end = offset + extent;
      const int64_t low = all ? offset : CountBelow(known, offset);
      const int64_t high = all ? end : CountBelow(known, end);
      if (low < high) {
        Path part = path;
        if (!all) part.known[axis] = Kept(Moved(known.Range(low, high - low), -offset), extent);
        part.back = Select(path.back, axis, IndexMap::Slice(low, high - low));
        Walk(x, std::move(part));
      }
      offset = end;
    }
  }

  void WalkMap(const WeightPtr& w, Path path) {
    const WeightPtr& y = w->child(1);
    const bool scales = w->map_fn() == MapFn::kMul || w->map_fn() == MapFn::kDiv;
    const bool exact_enough = IsFloat(w->dtype()) || w->map_fn() != MapFn::kDiv;
    if (!exact_enough) return Consume(w, "arithmetic that cannot be undone");
    if (!SourcesOf(y).empty()) return pending_.push_back({w, std::move(path), twin_});
    if (scales && !IsDivisor(y)) return Consume(w, "arithmetic that cannot be undone");
    Undo(w, y, std::move(path));
  }

  // `y`: the second operand, as the twin knows it.
  void Undo(const WeightPtr& w, WeightPtr y, Path path) {
    if (inverses_) {
      const int64_t lead = w->rank() - y->rank();
      for (int64_t i = 0; i < y->rank(); ++i) {
        const IndexMap& known = path.known[lead + i];
        if (y->shape()[i] != 1 && !IsWhole(known)) y = Take(y, i, known);
      }
      path.back = Map(InverseOf(w->map_fn()), path.back, y);
    }
    path.fate = std::max(path.fate, Fate::kRescaled);
    Walk(w->child(0), std::move(path));
  }

  // Groups of axes with equal products are turned back one after another; each may fork
  // the path.
  void WalkReshape(const WeightPtr& w, Path path) {
    const Shape& shape = w->shape();
    const Shape& inner = w->child()->shape();
    if (std::all_of(path.known.begin(), path.known.end(), IsWhole)) {
      return Walk(w->child(), {Reshaped(path.back, inner), Known(inner.size()), path.fate});
    }
    Regroup(w, ShapeGroups(shape, inner), 0, 0, std::move(path));
  }

  // Axes [0, done) of `path` are already the operand's; group `g` begins there.
  void Regroup(const WeightPtr& w, const std::vector<ShapeGroup>& groups, size_t g, size_t done, Path path) {
    if (g == groups.size()) return Walk(w->child(), std::move(path));
    const ShapeGroup& group = groups[g];
    const size_t count = group.outer.size();
    Known known;
    for (size_t i = 0; i < count; ++i) known.push_back(Spelled(path.known[done + i], group.outer[i]));
    const IndexMap flat = FlattenSets(known, group.outer);
    const size_t after = done + count;
    for (const ProductSet& set : SplitSet(flat, group.inner)) {
      Path part = {Regrouped(path.back, done, after, flat.size(), set), {}, path.fate};
      part.known.assign(path.known.begin(), path.known.begin() + done);
      for (size_t i = 0; i < set.axes.size(); ++i) part.known.push_back(Kept(set.axes[i], group.inner[i]));
      part.known.insert(part.known.end(), path.known.begin() + after, path.known.end());
      Regroup(w, groups, g + 1, done + group.inner.size(), std::move(part));
    }
  }

  // Axes [done, after) of `back`, `flat` elements in all, merged, cut to `set`'s positions and split as it
  // is.
  static WeightPtr Regrouped(const WeightPtr& back, size_t done, size_t after, int64_t flat,
                             const ProductSet& set) {
    if (back == nullptr) return nullptr;
    Shape extents(back->shape().begin(), back->shape().begin() + done);
    extents.push_back(flat);
    extents.insert(extents.end(), back->shape().begin() + after, back->shape().end());
    const WeightPtr cut = Select(Reshape(back, extents), static_cast<int64_t>(done), set.positions);
    extents.erase(extents.begin() + done);
    std::vector<int64_t> sizes;
    for (const IndexMap& axis : set.axes) sizes.push_back(axis.size());
    extents.insert(extents.begin() + done, sizes.begin(), sizes.end());
    return Reshape(cut, extents);
  }

  absl::flat_hash_map<std::string, Entry>& entries_;
  bool inverses_;
  std::vector<Finding> findings_;
  std::vector<Pending> pending_;
  std::string twin_;
};

// ---- what became of a source

void Judge(const Entry& entry, bool inverses, LedgerRow& row) {
  const Weight& source = *entry.source;
  if (entry.consumers.empty()) {
    row.reason = "no tensor of the twin reads it";
    return;
  }
  if (source.element_count() == 0) {  // nothing to bring back
    row.fate = Fate::kMoved;
    if (inverses) row.inverse = Fill(0, source.dtype(), source.shape());
    return;
  }
  if (entry.pieces.empty() && !entry.consumed.empty()) {
    row.fate = Fate::kConsumed;
    row.reason = entry.consumed;
    return;
  }
  Assembly assembly;
  size_t considered = 0;
  for (Fate worst : {Fate::kMoved, Fate::kRescaled, Fate::kRounded}) {
    Pieces pieces;
    for (const Path& piece : entry.pieces) {
      if (piece.fate <= worst) pieces.push_back(&piece);
    }
    if (pieces.size() == considered) continue;
    considered = pieces.size();
    assembly = Assemble(source.shape(), Known(source.rank()), pieces);
    if (assembly.missing > 0) continue;
    row.fate = worst;
    row.inverse = assembly.program;
    return;
  }
  row.fate = Fate::kPartial;
  row.reason = absl::StrCat(considered == 0 ? source.element_count() : assembly.missing, " of ",
                            source.element_count(), " elements are in no tensor of the twin");
  if (!entry.consumed.empty()) absl::StrAppend(&row.reason, "; ", entry.consumed);
}

}  // namespace

absl::string_view FateName(Fate fate) {
  switch (fate) {
    case Fate::kMoved:
      return "moved";
    case Fate::kRescaled:
      return "rescaled";
    case Fate::kRounded:
      return "rounded";
    case Fate::kPartial:
      return "partial";
    case Fate::kConsumed:
      return "consumed";
    case Fate::kUnused:
      return "unused";
  }
  return "";
}

namespace {

constexpr int64_t kWorthAThread = 256;

// All twins, several at a time; what is found is filed in their order.
Walker WalkAll(const std::vector<NamedProgram>& twin, bool inverses,
               absl::flat_hash_map<std::string, Entry>& entries) {
  constexpr int64_t kChunk = 4 * kWorthAThread;
  const auto count = static_cast<int64_t>(twin.size());
  std::vector<Walker> walkers((count + kChunk - 1) / kChunk, Walker(entries, inverses));
  ParallelFor(static_cast<int64_t>(walkers.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t at = i * kChunk; at < std::min(count, (i + 1) * kChunk); ++at)
        walkers[i].WalkTwin(twin[at]);
    }
  });
  Walker whole(entries, inverses);
  for (Walker& walker : walkers) whole.Join(std::move(walker));
  whole.File();
  return whole;
}

std::vector<LedgerRow> Trace(const std::vector<NamedProgram>& twin, const std::vector<WeightPtr>& sources,
                             bool inverses) {
  absl::flat_hash_map<std::string, Entry> entries;
  entries.reserve(sources.size());
  for (const WeightPtr& source : sources) {
    TWIN_CHECK(source->kind() == WeightKind::kSource, "Invert wants kSource nodes");
    entries[source->source_name()].source = source;
  }
  Walker walker = WalkAll(twin, inverses, entries);
  absl::flat_hash_map<std::string, WayHome> homes;
  walker.WalkPending([&](const std::string& name) -> WayHome {
    if (const auto known = homes.find(name); known != homes.end()) return known->second;
    const auto entry = entries.find(name);
    LedgerRow row;
    if (entry != entries.end()) Judge(entry->second, inverses, row);
    if (row.fate > Fate::kRounded) return {false, nullptr, row.fate};
    return homes[name] = {true, row.inverse, row.fate};
  });
  std::vector<LedgerRow> rows(sources.size());
  ParallelFor(static_cast<int64_t>(rows.size()), kWorthAThread, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Entry& entry = entries.at(sources[i]->source_name());
      rows[i].source = sources[i]->source_name();
      rows[i].consumers = entry.consumers;
      std::sort(rows[i].consumers.begin(), rows[i].consumers.end());
      rows[i].consumers.erase(std::unique(rows[i].consumers.begin(), rows[i].consumers.end()),
                              rows[i].consumers.end());
      Judge(entry, inverses, rows[i]);
    }
  });
  return rows;
}

}  // namespace

std::vector<LedgerRow> Invert(const std::vector<NamedProgram>& twin, const std::vector<WeightPtr>& sources) {
  return Trace(twin, sources, true);
}

std::vector<LedgerRow> Ledger(const std::vector<NamedProgram>& twin, const std::vector<WeightPtr>& sources) {
  return Trace(twin, sources, false);
}

}  // namespace twinforge
