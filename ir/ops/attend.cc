#include "ir/ops/attend.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "ir/ops/common.h"
#include "ir/ops/shapes.h"

namespace twinforge {
namespace {

// Axes of scores: [batch, kv_heads, seq, group, keys].
constexpr int kSeq = 2, kGroup = 3, kKeys = 4;

// The places of queries and keys in the whole sequence, i32 [seq, keys].
struct Grid {
  NodeId query = -1, key = -1;
};

Grid MakeGrid(Emitter& emit, const AttendInputs& in, NodeId scores) {
  const Type type{DType::kI32, {emit.AxisOf(scores, kSeq), emit.AxisOf(scores, kKeys)}};
  Grid grid{emit.Iota(type, 0), emit.Iota(type, 1)};
  if (in.past >= 0) grid.query = emit.Add(grid.query, emit.Broadcast(in.past, type.axes, {}));
  return grid;
}

// Scores where `seen` [seq, keys], minus infinity elsewhere.
NodeId Hide(Emitter& emit, NodeId seen, NodeId scores) {
  const NodeId all = emit.Broadcast(seen, emit.AxesOf(scores), {kSeq, kKeys});
  return emit.Select(all, scores, emit.Like(scores, -std::numeric_limits<double>::infinity()));
}

// Keys before the sequence's first are seen by nobody; padding sees itself, so that each row has a key.
NodeId HidePadding(Emitter& emit, NodeId starts, const Grid& grid, NodeId scores) {
  const std::vector<Axis> axes = {emit.AxisOf(scores, 0), emit.AxisOf(scores, kSeq), emit.AxisOf(scores, kKeys)};
  const NodeId first =
      emit.Minimum(emit.Broadcast(starts, axes, {0}), emit.Broadcast(grid.query, axes, {1, 2}));
  const NodeId seen = emit.Compare(CompareAttrs::LE, first, emit.Broadcast(grid.key, axes, {1, 2}));
  const NodeId all = emit.Broadcast(seen, emit.AxesOf(scores), {0, kSeq, kKeys});
  return emit.Select(all, scores, emit.Like(scores, -std::numeric_limits<double>::infinity()));
}

NodeId Mask(Emitter& emit, const AttendInputs& in, const Grid& grid, NodeId scores) {
  const AttentionAttrs& attrs = in.attrs;
  if (in.starts >= 0) scores = HidePadding(emit, in.starts, grid, scores);
  if (attrs.causal()) scores = Hide(emit, emit.Compare(CompareAttrs::LE, grid.key, grid.query), scores);
  if (attrs.window() != 0) {
    const NodeId age = emit.Subtract(grid.query, grid.key);
    const NodeId window = emit.Like(age, static_cast<double>(attrs.window()));
    scores = Hide(emit, emit.Compare(CompareAttrs::LT, age, window), scores);
  }
  if (attrs.chunk() != 0) {
    const NodeId chunk = emit.Like(grid.key, static_cast<double>(attrs.chunk()));
    const NodeId same =
        emit.Compare(CompareAttrs::EQ, emit.Divide(grid.query, chunk), emit.Divide(grid.key, chunk));
    scores = Hide(emit, same, scores);
  }
  return scores;
}

// scores + slope of the head * (key - query)
NodeId Slant(Emitter& emit, const AttendInputs& in, const Grid& grid, NodeId scores) {
  const DType dtype = emit.DTypeOf(scores);
  const std::vector<double> slopes(in.attrs.alibi().begin(), in.attrs.alibi().end());
  const Type type{dtype, {emit.AxisOf(scores, 1), emit.AxisOf(scores, kGroup)}};
  const NodeId distance = emit.Convert(emit.Subtract(grid.key, grid.query), dtype);
  const NodeId slope = emit.Broadcast(emit.Constants(type, slopes), emit.AxesOf(scores), {1, kGroup});
  return emit.Add(scores, emit.Multiply(slope, emit.Broadcast(distance, emit.AxesOf(scores), {kSeq, kKeys})));
}

// Softmax over the keys and one logit more, which the result leaves out.
NodeId SoftmaxWithSinks(Emitter& emit, NodeId scores, NodeId sinks) {
  const NodeId wide = emit.Widen(scores);
  const std::vector<Axis> heads = {emit.AxisOf(scores, 1), emit.AxisOf(scores, kGroup)};
  const NodeId top = emit.ReduceLast(ReduceAttrs::MAX, wide);
  const NodeId sink = emit.Broadcast(emit.Reshape(emit.Convert(sinks, emit.WideOf(scores)), heads),
                                     emit.AxesOf(top), {1, kGroup});
  const NodeId most = emit.Maximum(top, sink);
  const NodeId e = emit.Unary(OpKind::kExp, emit.Subtract(wide, emit.SpreadFirst(most, wide)));
  const NodeId rest = emit.Unary(OpKind::kExp, emit.Subtract(sink, most));
  const NodeId sum = emit.Add(emit.ReduceLast(ReduceAttrs::SUM, e), rest);
  return emit.Divide(e, emit.SpreadFirst(sum, e));
}

}  // namespace

NodeId Attend(Emitter& emit, const AttendInputs& in) {
  const AttentionAttrs& attrs = in.attrs;
  const Axis heads = emit.AxisOf(in.q, 2), kv_heads = emit.AxisOf(in.k, 2);
  const int64_t group =
      heads.size.value().value_or(1) / std::max<int64_t>(kv_heads.size.value().value_or(1), 1);
  const NodeId q = emit.Reshape(in.q, {emit.AxisOf(in.q, 0), emit.AxisOf(in.q, 1), kv_heads,
                                       Axis{"group", Dim(group)}, emit.AxisOf(in.q, 3)});
  NodeId scores =
      emit.Dot(q, in.k, {.x_batch = {0, 2}, .y_batch = {0, 2}, .x_contract = {4}, .y_contract = {3}});
  scores = SoftCap(emit, emit.Scale(scores, attrs.scale()), attrs.softcap());
  const bool masked = attrs.causal() || attrs.window() != 0 || attrs.chunk() != 0 || in.starts >= 0;
  if (masked || attrs.alibi_size() != 0) {
    const Grid grid = MakeGrid(emit, in, scores);
    if (attrs.alibi_size() != 0) scores = Slant(emit, in, grid, scores);
    scores = Mask(emit, in, grid, scores);
  }
  NodeId p = in.sinks >= 0 ? SoftmaxWithSinks(emit, scores, in.sinks) : Softmax(emit, scores);
  p = emit.Convert(p, emit.DTypeOf(in.q));
  const NodeId mixed =
      emit.Dot(p, in.v, {.x_batch = {0, 1}, .y_batch = {0, 2}, .x_contract = {kKeys}, .y_contract = {1}});
  const NodeId by_position = emit.Transpose(mixed, {0, 2, 1, 3, 4});
  return emit.Reshape(by_position, {emit.AxisOf(in.q, 0), emit.AxisOf(in.q, 1), heads, emit.AxisOf(in.v, 3)});
}

NodeId Remember(Emitter& emit, size_t slot, NodeId fresh) {
  if (!emit.with_state()) return emit.Rename(fresh, 1, "keys");
  const NodeId all = emit.Concat({emit.State(slot), fresh}, 1);
  emit.SetState(slot, all);
  return emit.Rename(all, 1, "keys");
}

NodeId Past(Emitter& emit) { return emit.with_state() ? emit.DimensionSize(emit.State(0), 1) : -1; }

absl::Status VerifyScores(const Node& node, const AttentionAttrs& attrs, int64_t heads) {
  if (!IsPositive(attrs.scale())) return Misfit(node, absl::StrCat("softmax scale is ", attrs.scale()));
  if (!AttentionAttrs::ScaleRule_IsValid(attrs.scale_rule())) return Misfit(node, "unknown scale rule");
  if (attrs.window() < 0) return Misfit(node, absl::StrCat("window is ", attrs.window()));
  if (attrs.chunk() < 0) return Misfit(node, absl::StrCat("chunk is ", attrs.chunk()));
  if (!IsNotNegative(attrs.softcap())) return Misfit(node, absl::StrCat("softcap is ", attrs.softcap()));
  if (attrs.alibi_size() != 0 && attrs.alibi_size() != heads) {
    return Misfit(node, absl::StrCat(attrs.alibi_size(), " slopes for ", heads, " heads"));
  }
  for (double slope : attrs.alibi()) {
    if (!std::isfinite(slope)) return Misfit(node, absl::StrCat("a slope is ", slope));
  }
  return absl::OkStatus();
}

}  // namespace twinforge
