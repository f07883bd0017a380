// Rotary position embedding (Su et al. 2021, arXiv:2104.09864): (x [batch, seq, .., head_dim], positions) ->
// x turned.
//
// Pair i of a head's first rotary_dim places turns by position * frequency i. HALVES pairs i with i +
// rotary_dim / 2, INTERLEAVED pairs 2i with 2i + 1. Angles are computed in f32 or wider, their cosines
// rounded to x's dtype.
#include "ir/rope.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ir/ops/common.h"
#include "ir/ops/composite.h"
#include "ir/ops/shapes.h"

namespace twinforge {
namespace {

absl::StatusOr<Type> Infer(const Graph& graph, const Node& node) {
  const Type &x = OperandType(graph, node), &positions = OperandType(graph, node, 1);
  const bool fits = x.axes.size() >= 3 && IsFloat(x.dtype) && positions.axes.size() == 2 &&
                    IsInteger(positions.dtype) && positions.axes[0].size == x.axes[0].size &&
                    positions.axes[1].size == x.axes[1].size && x.axes.back().size.value().has_value();
  if (fits) return x;
  return Misfit(node, absl::StrCat("positions ", Text(positions), " of ", Text(x)));
}

absl::Status Check(const Graph& graph, const Node& node) {
  TWIN_RETURN_IF_ERROR(Infer(graph, node).status());
  const Rope& rope = node.attrs->rope();
  if (rope.style() == Rope::ABSENT) return Misfit(node, "a rope has a style");
  return VerifyRope(node, rope, *OperandType(graph, node).axes.back().size.value());
}

// The number of places that the longest sequence has, as a scalar of `dtype`. Where frequencies follow it,
// keys that were remembered keep the frequencies of their own time, as in the library: decode then equals
// prefill only as long as the trained length is not exceeded.
NodeId Length(Emitter& emit, DType dtype) {
  const NodeId last = emit.Reduce(ReduceAttrs::MAX, emit.operand(1), {0, 1});
  return emit.Convert(emit.Shift(last, 1), dtype);
}

// theta (factor length / trained - (factor - 1))^(dim / (dim - 2)) for lengths beyond the trained one, then
// as usual.
NodeId DynamicFrequencies(Emitter& emit, const Rope& rope, const Type& type) {
  const double trained = static_cast<double>(rope.max_position_embeddings());
  const double dim = static_cast<double>(rope.rotary_dim()), factor = rope.scaling().factor();
  const NodeId length = Length(emit, type.dtype);
  const NodeId longest = emit.Maximum(length, emit.Like(length, trained));
  const NodeId stretch = emit.Shift(emit.Scale(longest, factor / trained), 1 - factor);
  const Type scalar{type.dtype, {}};
  const NodeId power = emit.Power(stretch, emit.Constant(dim / (dim - 2), scalar));
  const NodeId base = emit.Scale(power, rope.theta());
  std::vector<double> exponents;
  for (int64_t i = 0; i < rope.rotary_dim() / 2; ++i)
    exponents.push_back(-2.0 * static_cast<double>(i) / dim);
  return emit.Power(emit.Broadcast(base, type.axes, {}), emit.Constants(type, exponents));
}

// [rotary] frequencies in radians per position.
NodeId Frequencies(Emitter& emit, const Rope& rope, DType dtype) {
  const Type type{dtype, {Axis{"rotary", Dim(rope.rotary_dim() / 2)}}};
  const RopeScaling& scaling = rope.scaling();
  if (scaling.kind() == RopeScaling::DYNAMIC) return DynamicFrequencies(emit, rope, type);
  const NodeId usual = emit.Constants(type, RopeFrequencies(rope, RopeLength::kTrained));
  if (scaling.kind() != RopeScaling::LONGROPE) return usual;
  const NodeId length = Length(emit, dtype);
  const double trained = static_cast<double>(scaling.original_max_position_embeddings());
  const NodeId beyond = emit.Compare(CompareAttrs::GT, length, emit.Like(length, trained));
  const NodeId stretched = emit.Constants(type, RopeFrequencies(rope, RopeLength::kBeyond));
  return emit.Select(emit.Broadcast(beyond, type.axes, {}), stretched, usual);
}

struct Turned {
  NodeId first, second;
};

// (a, b) -> (a cos - b sin, b cos + a sin), with the angles' axes [batch, seq, rotary].
Turned Turn(Emitter& emit, const Rope& rope, NodeId a, NodeId b) {
  const DType wide = emit.WideOf(a);
  const NodeId positions = emit.operand(1);
  std::vector<Axis> axes = emit.AxesOf(positions);
  axes.push_back(Axis{"rotary", Dim(rope.rotary_dim() / 2)});
  const NodeId angle = emit.Multiply(emit.Broadcast(emit.Convert(positions, wide), axes, {0, 1}),
                                     emit.Broadcast(Frequencies(emit, rope, wide), axes, {2}));
  const double magnitude = RopeMagnitude(rope);
  const auto table = [&](OpKind op) {
    NodeId value = emit.Unary(op, angle);
    if (magnitude != 1) value = emit.Scale(value, magnitude);
    return emit.Broadcast(emit.Convert(value, emit.DTypeOf(a)), emit.AxesOf(a), {0, 1, emit.Rank(a) - 1});
  };
  const NodeId cosine = table(OpKind::kCosine), sine = table(OpKind::kSine);
  return {emit.Subtract(emit.Multiply(a, cosine), emit.Multiply(b, sine)),
          emit.Add(emit.Multiply(b, cosine), emit.Multiply(a, sine))};
}

NodeId TurnHalves(Emitter& emit, const Rope& rope, NodeId x) {
  const int64_t half = rope.rotary_dim() / 2;
  const Turned turned = Turn(emit, rope, emit.Slice(x, -1, 0, half), emit.Slice(x, -1, half, half));
  return emit.Concat({turned.first, turned.second}, -1);
}

// Pairs stand on an axis of their own while they turn.
NodeId TurnInterleaved(Emitter& emit, const Rope& rope, NodeId x) {
  std::vector<Axis> split = emit.AxesOf(x), halves = split, single;
  if (split.empty()) return -1;
  halves.back().size = split.back().size = Dim(rope.rotary_dim() / 2);
  halves.back().logical = split.back().logical = 0;
  single = split;
  split.push_back(Axis{"pair", Dim(2)});
  single.push_back(Axis{"pair", Dim(1)});
  const NodeId pairs = emit.Reshape(x, split);
  const Turned turned = Turn(emit, rope, emit.Reshape(emit.Slice(pairs, -1, 0, 1), halves),
                             emit.Reshape(emit.Slice(pairs, -1, 1, 1), halves));
  const NodeId joined =
      emit.Concat({emit.Reshape(turned.first, single), emit.Reshape(turned.second, single)}, -1);
  std::vector<Axis> merged = halves;
  merged.back().size = Dim(rope.rotary_dim());
  return emit.Reshape(joined, merged);
}

NodeId Decompose(Emitter& emit) {
  const Rope& rope = emit.attrs().rope();
  const NodeId x = emit.operand();
  const int64_t width = emit.AxisOf(x, -1).size.value().value_or(0);
  const bool partial = rope.rotary_dim() < width;
  const NodeId part = partial ? emit.Slice(x, -1, 0, rope.rotary_dim()) : x;
  NodeId turned =
      rope.style() == Rope::HALVES ? TurnHalves(emit, rope, part) : TurnInterleaved(emit, rope, part);
  if (partial) {
    turned = emit.Concat({turned, emit.Slice(x, -1, rope.rotary_dim(), width - rope.rotary_dim())}, -1);
  }
  return emit.Reshape(turned, emit.AxesOf(x));
}

}  // namespace

const CompositeOp kRopeOp = {Infer, Check, Decompose};

}  // namespace twinforge
