#include "ir/stacks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "weights/build.h"

namespace twinforge {
namespace {

// "experts.", ".up.weight" of "experts.0.up.weight" and "experts.1.up.weight".
struct Pattern {
  absl::string_view prefix, suffix;
  bool Fits(absl::string_view name, int64_t number) const {
    const absl::AlphaNum digits(number);
    return name.size() == prefix.size() + digits.size() + suffix.size() &&
           name.substr(0, prefix.size()) == prefix &&
           name.substr(prefix.size(), digits.size()) == digits.Piece() &&
           name.substr(prefix.size() + digits.size()) == suffix;
  }
};

Pattern PatternOf(absl::string_view zeroth, absl::string_view first) {
  const size_t common = std::min(zeroth.size(), first.size());
  const size_t at =
      std::mismatch(zeroth.begin(), zeroth.begin() + common, first.begin()).first - zeroth.begin();
  return {zeroth.substr(0, at), zeroth.substr(std::min(at + 1, zeroth.size()))};
}

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

bool IsNextExpert(const LayoutTensor& last, const LayoutTensor& tensor) {
  if (last.parts.size() != tensor.parts.size() || last.join_axis != tensor.join_axis ||
      last.arrangement != tensor.arrangement) {
    return false;
  }
  for (size_t i = 0; i < tensor.parts.size(); ++i) {
    const LayoutPart& a = last.parts[i];
    const LayoutPart& b = tensor.parts[i];
    if (!a.expert_index || !b.expert_index || a.role != b.role || a.extents != b.extents) return false;
  }
  return true;
}

StoredStack StackAt(absl::Span<const LayoutTensor> tensors, int64_t experts, const StoredTensors& stored) {
  if (experts < 2 || static_cast<int64_t>(tensors.size()) < experts || tensors[0].parts.size() != 1)
    return {};
  const auto zeroth = stored.find(tensors[0].name);
  if (zeroth == stored.end()) return {};
  const Weight& member = *zeroth->second;
  if (member.kind() != WeightKind::kSource) return {};
  const Pattern pattern = PatternOf(tensors[0].name, tensors[1].name);
  for (int64_t i = 0; i < experts; ++i) {
    const LayoutTensor& tensor = tensors[i];
    if (tensor.parts[0].expert_index != i || !pattern.Fits(tensor.name, i)) return {};
    if (i > 0 && !IsNextExpert(tensors[i - 1], tensor)) return {};
    const auto source = stored.find(tensor.name);
    if (source == stored.end() || source->second->kind() != WeightKind::kSource ||
        source->second->source_name() != tensor.name || source->second->dtype() != member.dtype() ||
        source->second->shape() != member.shape()) {
      return {};
    }
  }
  return {StackedSources(pattern.prefix, 0, experts, pattern.suffix, member.dtype(), member.shape()),
          experts};
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
