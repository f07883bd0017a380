#include "ir/stacks.h"

#include <utility>

#include "weights/build.h"

namespace twinforge {
namespace {

// Whether what `program` holds at a place of `axis` is made of that member of a stack alone.
bool CarriesMembers(const Weight& program, int64_t axis) {
  switch (program.kind()) {
    case WeightKind::kStack:
      return axis == 0;
    case WeightKind::kTake:
      return program.axis() != axis && CarriesMembers(*program.child(), axis);
    case WeightKind::kTranspose:
      return CarriesMembers(*program.child(), program.perm()[axis]);
    case WeightKind::kReshape: {
      const Shape& inner = program.child()->shape();
      return axis == 0 && !inner.empty() && inner[0] == program.shape()[0] &&
             CarriesMembers(*program.child(), 0);
    }
    case WeightKind::kCast:
      return CarriesMembers(*program.child(), axis);
    case WeightKind::kSource:
    case WeightKind::kFill:
    case WeightKind::kConcat:
    case WeightKind::kMap:
    case WeightKind::kContract:
    case WeightKind::kStat:
    case WeightKind::kGroup:
      return false;
  }
  return false;
}

// REQUIRES: CarriesMembers(program, axis).
WeightPtr OfMember(const Weight& program, int64_t axis, int64_t at) {
  if (program.kind() == WeightKind::kStack) return StackMember(program, at);
  const Weight& below = *program.child();
  switch (program.kind()) {
    case WeightKind::kTake:
      return Take(OfMember(below, axis, at), program.axis() - (program.axis() > axis ? 1 : 0), program.map(),
                  program.fill());
    case WeightKind::kTranspose: {
      const int64_t gone = program.perm()[axis];
      std::vector<int64_t> perm;
      for (int64_t i = 0; i < program.rank(); ++i) {
        if (i != axis) perm.push_back(program.perm()[i] - (program.perm()[i] > gone ? 1 : 0));
      }
      return Transpose(OfMember(below, gone, at), std::move(perm));
    }
    case WeightKind::kReshape:
      return Reshape(OfMember(below, 0, at), Shape(program.shape().begin() + 1, program.shape().end()));
    default:
      return Cast(OfMember(below, axis, at), program.dtype());
  }
}

}  // namespace

WeightPtr StackOf(const LayoutTensor& run, const StoredTensors& stored) {
  if (run.count() < 2 || run.parts.size() != 1) return nullptr;
  const auto zeroth = stored.find(run.NameAt(0));
  if (zeroth == stored.end()) return nullptr;
  const Weight& member = *zeroth->second;
  if (member.kind() == WeightKind::kStack) return zeroth->second;
  for (int64_t i = 0; i < run.count(); ++i) {
    const std::string name = run.NameAt(i);
    const auto found = stored.find(name);
    if (found == stored.end()) return nullptr;
    const Weight& source = *found->second;
    if (source.kind() != WeightKind::kSource || source.source_name() != name ||
        source.dtype() != member.dtype() || source.shape() != member.shape())
      return nullptr;
  }
  return StackedSources(run.name, 0, run.count(), run.name_end, member.dtype(), member.shape());
}

WeightPtr ExpertOf(const WeightPtr& program, int64_t axis, int64_t expert) {
  if (CarriesMembers(*program, axis)) return OfMember(*program, axis, expert);
  // Of a stack that is plainly one, its child, without a search among hundreds.
  const auto children = static_cast<int64_t>(program->children().size());
  if (program->kind() == WeightKind::kConcat && program->axis() == axis &&
      children == program->shape()[axis]) {
    return Index(program->child(static_cast<int>(expert)), axis, 0);
  }
  return Index(program, axis, expert);
}

}  // namespace twinforge
