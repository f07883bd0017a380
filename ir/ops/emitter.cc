#include "ir/ops/emitter.h"

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "ir/ops/composite.h"

namespace twinforge {

Emitter::Emitter(const Graph& from, const Node& node, const DecompositionInputs& inputs,
                 DecompositionDepth depth, Builder& to)
    : from_(from),
      node_(node),
      inputs_(inputs),
      depth_(depth),
      to_(to),
      new_state_(inputs.state.size(), -1),
      positions_(inputs.positions),
      token_types_(inputs.token_types) {}

void Emitter::Fail(absl::string_view message) {
  if (status_.ok()) status_ = Error(1501, node_.path, message);
}

absl::Status Emitter::status() const { return status_.ok() ? to_.status() : status_; }

std::string Emitter::NextPath(absl::string_view name) {
  return absl::StrCat(node_.path, ".", name, "_", count_++);
}

NodeId Emitter::Op(OpKind op, std::vector<NodeId> operands, OpAttrs attrs) {
  if (!status_.ok()) return -1;
  return to_.Op(op, NextPath(Info(op).name), std::move(operands), std::move(attrs), {});
}

int Emitter::PlaceOf(NodeId x, int axis) {
  const int place = axis < 0 ? Rank(x) + axis : axis;
  if (place >= 0 && place < Rank(x)) return place;
  if (to_.status().ok()) Fail(absl::StrCat("the operand ", Text(TypeOf(x)), " has too few axes"));
  return 0;
}

Axis Emitter::AxisOf(NodeId x, int axis) const {
  const int place = axis < 0 ? Rank(x) + axis : axis;
  return place >= 0 && place < Rank(x) ? TypeOf(x).axes[place] : Axis{"none", Dim(1)};
}

// ---- parameters, state, positions

NodeId Emitter::Param(absl::string_view slot) {
  const std::string role(node_.Role(slot));
  const auto known = params_.find(role);
  if (known != params_.end()) return known->second;
  if (!status_.ok()) return -1;
  const NodeId id = to_.Op(OpKind::kParam, role, {}, OpAttrs(), {{"value", from_.param(node_, slot)}});
  return params_[role] = id;
}

void Emitter::SetState(size_t slot, NodeId value) {
  if (slot < new_state_.size()) new_state_[slot] = value;
}

void Emitter::NeedsSequence() {
  if (Rank(operand()) == 3) return;
  Fail(absl::StrCat("the operand is ", Text(TypeOf(operand())), ", not [batch, seq, channels]"));
}

NodeId Emitter::Positions() {
  if (positions_ < 0) {
    const NodeId x = operand();
    PlaceOf(x, 1);
    positions_ = Iota({DType::kI32, {AxisOf(x, 0), AxisOf(x, 1)}}, 1);
  }
  return positions_;
}

NodeId Emitter::TokenTypes() {
  if (token_types_ < 0) token_types_ = Constant(0, {DType::kI32, AxesOf(operand())});
  return token_types_;
}

// ---- primitives

NodeId Emitter::Constant(double value, const Type& type) { return Constants(type, {value}); }

NodeId Emitter::Constants(const Type& type, const std::vector<double>& values) {
  OpAttrs attrs;
  attrs.mutable_constant()->set_type(Text(type));
  attrs.mutable_constant()->mutable_values()->Assign(values.begin(), values.end());
  return Op(OpKind::kConstant, {}, std::move(attrs));
}

NodeId Emitter::Iota(const Type& type, int axis) {
  OpAttrs attrs;
  attrs.mutable_iota()->set_type(Text(type));
  attrs.mutable_iota()->set_axis(axis);
  return Op(OpKind::kIota, {}, std::move(attrs));
}

NodeId Emitter::DimensionSize(NodeId x, int axis) {
  OpAttrs attrs;
  attrs.mutable_axis()->set_axis(axis);
  return Op(OpKind::kDimensionSize, {x}, std::move(attrs));
}

NodeId Emitter::Compare(CompareAttrs::Direction direction, NodeId x, NodeId y) {
  OpAttrs attrs;
  attrs.mutable_compare()->set_direction(direction);
  return Op(OpKind::kCompare, {x, y}, std::move(attrs));
}

NodeId Emitter::Convert(NodeId x, DType dtype) {
  if (DTypeOf(x) == dtype) return x;
  OpAttrs attrs;
  attrs.mutable_convert()->set_dtype(std::string(Name(dtype)));
  return Op(OpKind::kConvert, {x}, std::move(attrs));
}

NodeId Emitter::Broadcast(NodeId x, std::vector<Axis> axes, const std::vector<int>& places) {
  OpAttrs attrs;
  attrs.mutable_broadcast()->set_type(Text(Type{DTypeOf(x), std::move(axes)}));
  attrs.mutable_broadcast()->mutable_axes()->Assign(places.begin(), places.end());
  return Op(OpKind::kBroadcast, {x}, std::move(attrs));
}

NodeId Emitter::Reshape(NodeId x, std::vector<Axis> axes) {
  if (axes == TypeOf(x).axes) return x;
  OpAttrs attrs;
  attrs.mutable_type()->set_type(Text(Type{DTypeOf(x), std::move(axes)}));
  return Op(OpKind::kReshape, {x}, std::move(attrs));
}

NodeId Emitter::Transpose(NodeId x, const std::vector<int>& permutation) {
  OpAttrs attrs;
  attrs.mutable_transpose()->mutable_permutation()->Assign(permutation.begin(), permutation.end());
  return Op(OpKind::kTranspose, {x}, std::move(attrs));
}

// A slice names its axis, and the name stands for the first axis that has it.
NodeId Emitter::Slice(NodeId x, int axis, int64_t start, int64_t size) {
  const int place = PlaceOf(x, axis);
  const Axis sliced = AxisOf(x, place);
  for (int i = 0; i < place; ++i) {
    if (AxisOf(x, i).name == sliced.name) Fail(absl::StrCat("two axes called ", sliced.name));
  }
  OpAttrs attrs;
  attrs.mutable_slice()->set_axis(sliced.name);
  attrs.mutable_slice()->set_start(start);
  attrs.mutable_slice()->set_size(size);
  return Op(OpKind::kSlice, {x}, std::move(attrs));
}

NodeId Emitter::Concat(std::vector<NodeId> xs, int axis) {
  OpAttrs attrs;
  attrs.mutable_axis()->set_axis(xs.empty() ? 0 : PlaceOf(xs[0], axis));
  return Op(OpKind::kConcat, std::move(xs), std::move(attrs));
}

NodeId Emitter::Pad(NodeId x, int axis, int64_t low, int64_t high, double value) {
  OpAttrs attrs;
  PadAttrs& pad = *attrs.mutable_pad();
  pad.set_axis(PlaceOf(x, axis));
  pad.set_low(low);
  pad.set_high(high);
  pad.set_value(value);
  return Op(OpKind::kPad, {x}, std::move(attrs));
}

NodeId Emitter::Reverse(NodeId x, int axis) {
  OpAttrs attrs;
  attrs.mutable_axis()->set_axis(PlaceOf(x, axis));
  return Op(OpKind::kReverse, {x}, std::move(attrs));
}

NodeId Emitter::Reduce(ReduceAttrs::Kind kind, NodeId x, const std::vector<int>& axes) {
  OpAttrs attrs;
  attrs.mutable_reduce()->set_kind(kind);
  for (int axis : axes) attrs.mutable_reduce()->add_axes(PlaceOf(x, axis));
  return Op(OpKind::kReduce, {x}, std::move(attrs));
}

NodeId Emitter::Dot(NodeId x, NodeId y, const DotPlaces& places) {
  OpAttrs attrs;
  DotAttrs& dot = *attrs.mutable_dot();
  for (int place : places.x_batch) dot.add_lhs_batch(place);
  for (int place : places.y_batch) dot.add_rhs_batch(place);
  for (int place : places.x_contract) dot.add_lhs_contract(place);
  for (int place : places.y_contract) dot.add_rhs_contract(place);
  return Op(OpKind::kDot, {x, y}, std::move(attrs));
}

NodeId Emitter::Gather(NodeId x, NodeId index, int axis) {
  OpAttrs attrs;
  attrs.mutable_axis()->set_axis(PlaceOf(x, axis));
  return Op(OpKind::kGather, {x, index}, std::move(attrs));
}

NodeId Emitter::TopK(NodeId x, int64_t k) {
  OpAttrs attrs;
  attrs.mutable_top_k()->set_k(k);
  return Op(OpKind::kTopK, {x}, std::move(attrs));
}

NodeId Emitter::Conv(NodeId x, NodeId kernel, const ConvAttrs& conv) {
  OpAttrs attrs;
  *attrs.mutable_conv() = conv;
  return Op(OpKind::kConv, {x, kernel}, std::move(attrs));
}

NodeId Emitter::Scan(NodeId first, NodeId decay, NodeId update, ScanAttrs::Product product) {
  OpAttrs attrs;
  attrs.mutable_scan()->set_product(product);
  return Op(OpKind::kScan, {first, decay, update}, std::move(attrs));
}

// ---- sentences

NodeId Emitter::SpreadFirst(NodeId x, NodeId like) {
  std::vector<int> places;
  for (int i = 0; i < Rank(x); ++i) places.push_back(i);
  return Broadcast(x, AxesOf(like), places);
}

NodeId Emitter::SpreadLast(NodeId x, NodeId like) {
  std::vector<int> places;
  for (int i = 0; i < Rank(x); ++i) places.push_back(Rank(like) - Rank(x) + i);
  return Broadcast(x, AxesOf(like), places);
}

DType Emitter::WideOf(NodeId x) const { return DTypeOf(x) == DType::kF64 ? DType::kF64 : DType::kF32; }

NodeId Emitter::Widen(NodeId x) { return Convert(x, WideOf(x)); }

NodeId Emitter::Rename(NodeId x, int axis, const std::string& name) {
  std::vector<Axis> axes = AxesOf(x);
  const int place = PlaceOf(x, axis);
  if (place < static_cast<int>(axes.size())) axes[place].name = name;
  return Reshape(x, std::move(axes));
}

NodeId Emitter::Composite(OpKind op, std::vector<NodeId> operands, OpAttrs attrs) {
  if (depth_ == DecompositionDepth::kOnce) return Op(op, std::move(operands), std::move(attrs));
  if (!status().ok()) return -1;
  Node part;
  part.op = op;
  part.path = NextPath(Info(op).name);
  part.attrs = std::make_shared<const OpAttrs>(std::move(attrs));
  DecompositionInputs inputs;
  inputs.operands = std::move(operands);
  Emitter inner(from_, part, inputs, depth_, to_);
  const NodeId result = Info(op).composite->decompose(inner);
  if (status_.ok()) status_ = inner.status_;
  return result;
}

}  // namespace twinforge
