#include "weights/invert_pieces.h"

#include <algorithm>

#include "weights/build.h"
#include "weights/index_set.h"

namespace twinforge::inverting {
namespace {

bool Holds(const Path& piece, const Known& region) {
  for (size_t i = 0; i < region.size(); ++i) {
    if (!IsWhole(piece.known[i]) && (IsWhole(region[i]) || !IsSubset(region[i], piece.known[i])))
      return false;
  }
  return true;
}

WeightPtr PickRegion(const Path& piece, const Known& region) {
  WeightPtr x = piece.back;
  if (x == nullptr) return x;
  for (size_t i = 0; i < region.size(); ++i) {
    if (IsWhole(region[i])) continue;
    const IndexMap& known = piece.known[i];
    x = Select(x, static_cast<int64_t>(i), IsWhole(known) ? region[i] : PositionsIn(known, region[i]));
  }
  return x;
}

// The region cut along `axis` into `classes`, each assembled on its own.
Assembly AssembleClasses(const Shape& shape, const Known& region, const Pieces& pieces, int64_t axis,
                         const std::vector<IndexClass>& classes) {
  Assembly whole;
  std::vector<WeightPtr> parts;
  std::vector<IndexMap> sets;
  for (const IndexClass& one : classes) {
    Known part = region;
    part[axis] = one.indices;
    Pieces holders;
    for (int64_t member : one.members) holders.push_back(pieces[member]);
    Assembly assembly = Assemble(shape, part, holders);
    whole.missing += assembly.missing;
    parts.push_back(std::move(assembly.program));
    sets.push_back(one.indices);
  }
  if (whole.missing > 0 || parts[0] == nullptr) return whole;
  const IndexMap order = PositionsIn(IndexMap::Join(sets), Spelled(region[axis], shape[axis]));
  whole.program = Select(Concat(axis, std::move(parts)), axis, order);
  return whole;
}

}  // namespace

WeightPtr Select(const WeightPtr& x, int64_t axis, const IndexMap& positions) {
  return x == nullptr || positions.IsIdentity(x->shape()[axis]) ? x : Take(x, axis, positions);
}
Assembly Assemble(const Shape& shape, const Known& region, const Pieces& pieces) {
  for (const Path* piece : pieces) {
    if (Holds(*piece, region)) return {PickRegion(*piece, region), 0};
  }
  // The axis along which the pieces differ most, and its classes.
  int64_t axis = -1;
  std::vector<IndexClass> classes;
  for (size_t i = 0; i < region.size() && !pieces.empty(); ++i) {
    std::vector<IndexMap> sets;
    bool differ = false;
    for (const Path* piece : pieces) {
      differ = differ || !IsWhole(piece->known[i]);
      sets.push_back(Spelled(piece->known[i], shape[i]));
    }
    if (!differ) continue;
    std::vector<IndexClass> here = ClassesOf(Spelled(region[i], shape[i]), sets);
    if (here.size() > std::max<size_t>(1, classes.size())) {
      axis = static_cast<int64_t>(i);
      classes = std::move(here);
    }
  }
  if (axis >= 0) return AssembleClasses(shape, region, pieces, axis, classes);
  int64_t missing = 1;
  for (size_t i = 0; i < region.size(); ++i) missing *= IsWhole(region[i]) ? shape[i] : region[i].size();
  return {nullptr, missing};
}

}  // namespace twinforge::inverting
