// What a decomposition is written with: primitives as functions, so that it reads like its formula.
//
//   NodeId centred = emit.Subtract(x, emit.Spread(emit.MeanLast(x), x));
//
// Names follow from the op and a count: layers.0.norm_in.subtract_3. Nothing here fails at once: the first
// mistake is kept, later calls return -1, and EmitDecomposition() returns it.
#ifndef TWINFORGE_IR_OPS_EMITTER_H_
#define TWINFORGE_IR_OPS_EMITTER_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "ir/builder.h"
#include "ir/decompose.h"
#include "ir/graph.h"

namespace twinforge {

class Emitter {
 public:
  // Everything outlives the emitter. `node` is a composite; `from` holds its parameters.
  Emitter(const Graph& from, const Node& node, const DecompositionInputs& inputs, DecompositionDepth depth,
          Builder& to);

  // ---- what is decomposed
  const Graph& from() const { return from_; }
  const Node& node() const { return node_; }
  const OpAttrs& attrs() const { return *node_.attrs; }
  NodeId operand(size_t i = 0) const { return i < inputs_.operands.size() ? inputs_.operands[i] : -1; }
  bool has_operand(size_t i) const { return i < inputs_.operands.size(); }
  bool Has(absl::string_view slot) const { return node_.Has(slot); }
  // The parameter in a slot, emitted where it is first asked for. REQUIRES: Has(slot).
  NodeId Param(absl::string_view slot);
  const ParamType& TypeOfParam(absl::string_view slot) const { return from_.param(node_, slot).type; }

  // ---- what it carries from call to call
  bool with_state() const { return !inputs_.state.empty(); }
  NodeId State(size_t slot) const { return slot < inputs_.state.size() ? inputs_.state[slot] : -1; }
  void SetState(size_t slot, NodeId value);
  const std::vector<NodeId>& new_state() const { return new_state_; }

  // Fails unless operand 0 is [batch, seq, channels].
  void NeedsSequence();
  // Where each token stands, i32 of operand 0's first two axes.
  NodeId Positions();
  // Where padding ends, i32 [batch]; -1: there is none.
  NodeId starts() const { return inputs_.starts; }
  // The rows of a type table, likewise.
  NodeId TokenTypes();

  // ---- values so far. Axes count from 0; negative ones from the end, -1 the last.
  const Type& TypeOf(NodeId x) const { return to_.TypeOf(x); }
  DType DTypeOf(NodeId x) const { return TypeOf(x).dtype; }
  int Rank(NodeId x) const { return static_cast<int>(TypeOf(x).axes.size()); }
  Axis AxisOf(NodeId x, int axis) const;  // an axis of size 1 where there is none, and a failure
  std::vector<Axis> AxesOf(NodeId x) const { return TypeOf(x).axes; }

  // ---- primitives
  NodeId Constant(double value, const Type& type);
  NodeId Constants(const Type& type, const std::vector<double>& values);
  NodeId Iota(const Type& type, int axis);
  NodeId DimensionSize(NodeId x, int axis);
  NodeId Unary(OpKind op, NodeId x) { return Op(op, {x}); }
  NodeId Add(NodeId x, NodeId y) { return Op(OpKind::kAdd, {x, y}); }
  NodeId Subtract(NodeId x, NodeId y) { return Op(OpKind::kSubtract, {x, y}); }
  NodeId Multiply(NodeId x, NodeId y) { return Op(OpKind::kMultiply, {x, y}); }
  NodeId Divide(NodeId x, NodeId y) { return Op(OpKind::kDivide, {x, y}); }
  NodeId Maximum(NodeId x, NodeId y) { return Op(OpKind::kMaximum, {x, y}); }
  NodeId Minimum(NodeId x, NodeId y) { return Op(OpKind::kMinimum, {x, y}); }
  NodeId Power(NodeId x, NodeId y) { return Op(OpKind::kPower, {x, y}); }
  NodeId Compare(CompareAttrs::Direction direction, NodeId x, NodeId y);
  NodeId Select(NodeId p, NodeId x, NodeId y) { return Op(OpKind::kSelect, {p, x, y}); }
  NodeId Convert(NodeId x, DType dtype);
  // Axis i of x becomes axis places[i] of the result, whose axes are `axes`.
  NodeId Broadcast(NodeId x, std::vector<Axis> axes, const std::vector<int>& places);
  NodeId Reshape(NodeId x, std::vector<Axis> axes);
  NodeId Transpose(NodeId x, const std::vector<int>& permutation);
  NodeId Slice(NodeId x, int axis, int64_t start, int64_t size);
  NodeId Concat(std::vector<NodeId> xs, int axis);
  NodeId Pad(NodeId x, int axis, int64_t low, int64_t high, double value);
  NodeId Reverse(NodeId x, int axis);
  NodeId Reduce(ReduceAttrs::Kind kind, NodeId x, const std::vector<int>& axes);
  // Over the given places of x and y.
  struct DotPlaces {
    std::vector<int> x_batch, y_batch, x_contract, y_contract;
  };
  NodeId Dot(NodeId x, NodeId y, const DotPlaces& places);
  NodeId Gather(NodeId x, NodeId index, int axis);
  NodeId TopK(NodeId x, int64_t k);
  NodeId Conv(NodeId x, NodeId kernel, const ConvAttrs& attrs);
  NodeId Scan(NodeId first, NodeId decay, NodeId update, ScanAttrs::Product product);

  // ---- with a number, as a constant of the other operand's type
  NodeId Like(NodeId x, double value) { return Constant(value, TypeOf(x)); }
  NodeId Shift(NodeId x, double term) { return Add(x, Like(x, term)); }
  NodeId Scale(NodeId x, double factor) { return Multiply(x, Like(x, factor)); }
  // A node's id is a number too: these would be taken for one.
  NodeId Add(NodeId x, double) = delete;
  NodeId Multiply(NodeId x, double) = delete;

  // ---- small sentences of several primitives
  // x, whose axes are `like`'s first or last ones, repeated to all of them.
  NodeId SpreadFirst(NodeId x, NodeId like);
  NodeId SpreadLast(NodeId x, NodeId like);
  NodeId ReduceLast(ReduceAttrs::Kind kind, NodeId x) { return Reduce(kind, x, {Rank(x) - 1}); }
  // In f32, or wider where x is: what models compute their norms, softmax and angles in.
  NodeId Widen(NodeId x);
  DType WideOf(NodeId x) const;
  // One axis under another name and size; the others stay.
  NodeId Rename(NodeId x, int axis, const std::string& name);

  // A smaller composite without parameters, as a node or, down to primitives, in place.
  NodeId Composite(OpKind op, std::vector<NodeId> operands, OpAttrs attrs);

  // The first mistake: of this emitter, or of the builder.
  void Fail(absl::string_view message);
  absl::Status status() const;

 private:
  NodeId Op(OpKind op, std::vector<NodeId> operands, OpAttrs attrs = OpAttrs());
  std::string NextPath(absl::string_view name);
  // Counted from 0; a failure where x has no such axis.
  int PlaceOf(NodeId x, int axis);

  const Graph& from_;
  const Node& node_;
  const DecompositionInputs& inputs_;
  const DecompositionDepth depth_;
  Builder& to_;
  absl::Status status_;
  int count_ = 0;
  std::vector<NodeId> new_state_;
  std::map<std::string, NodeId> params_;
  NodeId positions_ = -1, token_types_ = -1;
};

}  // namespace twinforge

#endif  // TWINFORGE_IR_OPS_EMITTER_H_
