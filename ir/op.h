// The catalogue of operations: what each is called, which parameters it takes.
//
// A composite's meaning is its decomposition (ops/<name>.cc), a primitive's is its evaluation (eval/). This
// catalogue is what every walk over a graph relies on: parameter slots with their axes, so that a transform
// asks for "q" and its "head_dim", never for a position.
//
//   attention   q [d_model -> heads head_dim]  k, v [d_model -> kv_heads head_dim]
//               o [heads head_dim -> d_model]  optional biases, q_norm, k_norm, sinks
//
// Primitives mean what StableHLO's ops of the same kind mean; where one of ours is narrower, its line below
// says how. Each has one result. Elementwise ones take operands of equal axes; to broadcast is an op of its
// own.
#ifndef TWINFORGE_IR_OP_H_
#define TWINFORGE_IR_OP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace twinforge {

enum class OpKind : uint8_t {
  // primitives: where values come from
  kInput,          // a graph input
  kParam,          // the value of a parameter; its role is the node's path
  kConstant,       // ConstantAttrs: one value everywhere, or each
  kIota,           // IotaAttrs: the index along an axis
  kDimensionSize,  // AxisAttrs: the extent of an axis, as a scalar i32
  // elementwise, two operands
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,  // of integers: rounded towards 0
  kMaximum,
  kMinimum,
  kPower,
  kCompare,  // CompareAttrs -> bool
  // elementwise, one operand
  kNegate,
  kAbs,
  kExp,
  kLog,
  kSqrt,
  kRsqrt,
  kTanh,
  kErf,
  kSine,
  kCosine,
  kLogistic,
  kFloor,
  kSign,
  kConvert,  // ConvertAttrs: another dtype, rounded to nearest even
  kSelect,   // where p then x else y
  // shapes
  kBroadcast,  // BroadcastAttrs: operand axis i becomes result axis axes[i], the others repeat
  kReshape,    // TypeAttrs: the same elements in row-major order under other axes
  kTranspose,  // TransposeAttrs: result axis i is operand axis permutation[i]
  kSlice,      // SliceAttrs: a range of one axis
  kConcat,     // AxisAttrs: joined along an axis
  kPad,        // PadAttrs: one axis, before, after and between
  kReverse,    // AxisAttrs: one axis backwards
  // reductions and products
  kReduce,  // ReduceAttrs: sum, maximum or minimum over axes, which go
  kDot,     // DotAttrs: batch axes, then the left's others, then the right's others
  kGather,  // AxisAttrs a: x[i.., j, k..] at j = index[i.., n..]; axes before a are shared: [i.., n.., k..]
  kTopK,    // TopKAttrs: places of the k largest along the last axis, largest first, ties by place; i32
  kConv,    // ConvAttrs: x [batch, spatial.., in] with kernel [spatial.., in / groups, out]
  kScan,    // ScanAttrs: h_t = h_{t-1} . a_t + u_t along axis 1; all h_t. StableHLO says it as a while loop
  kOpaque,  // OpaqueAttrs: an imported op that is carried along and never evaluated
  // composites
  kLinear,  // y = x kernel + bias
  kEmbedding,
  kRmsNorm,
  kLayerNorm,
  kAttention,
  kLatentAttention,
  kMlp,       // down(act(up x))
  kGatedMlp,  // down(act(gate x) * up x)
  kMoe,
  kLmHead,
  kActivation,  // elementwise, ActivationAttrs
  kRope,        // turns pairs of places by an angle that grows with the position: (x, positions)
  kRouter,      // (logits [, correction]) -> each expert's weight for each token, 0 where not chosen
  kConvStem,    // a convolution that turns frames or patches into channels
  kShortConv,   // a gated causal convolution of few taps in attention's place
  kStateSpace,  // a diagonal recurrence (Mamba 2) in attention's place
  kDeltaRule,   // a recurrence that corrects what it remembers (gated delta rule) in attention's place
};

struct SlotInfo {
  absl::string_view name;  // "q"; the role is <node path>.q
  bool main = false;       // the role is <node path> alone: embed, lm_head, norms, linear
  bool required = true;
  // "d_model -> heads head_dim", "expert ; d_model -> d_ff", "head_dim". "*" stands for one or
  // more axes of any name; several forms are separated by " | ", the usual one first.
  absl::string_view axes;
};

// One form of a slot's axes, taken apart.
struct SlotForm {
  std::vector<absl::string_view> lead, in, out;  // {"*"} matches any names; a vector's axes are `out`
};

// Which message of OpAttrs an op carries: the number of its field there.
enum class AttrsKind : uint8_t {
  kNone = 0,
  kEmbedding = 1,
  kNorm = 2,
  kAttention = 3,
  kLatentAttention = 4,
  kMlp = 5,
  kMoe = 6,
  kLmHead = 7,
  kActivation = 8,
  kSlice = 9,
  kRope = 10,
  kRouter = 11,
  kConvStem = 12,
  kShortConv = 13,
  kStateSpace = 14,
  kDeltaRule = 15,
  kConstant = 20,
  kIota = 21,
  kAxis = 22,
  kCompare = 23,
  kConvert = 24,
  kBroadcast = 25,
  kType = 26,
  kTranspose = 27,
  kPad = 28,
  kReduce = 29,
  kDot = 30,
  kTopK = 31,
  kConv = 32,
  kScan = 33,
  kOpaque = 34,
};

struct CompositeOp;  // ops/composite.h

struct OpInfo {
  OpKind kind;
  absl::string_view name;  // "gated_mlp"
  AttrsKind attrs = AttrsKind::kNone;
  const CompositeOp* composite = nullptr;  // what defines it; null for primitives
  int operands = 1;                        // activations it takes
  int optional_operands = 0;               // and how many more it may take; -1: any number
  std::vector<SlotInfo> slots;
};

const OpInfo& Info(OpKind kind);
absl::Span<const OpInfo> AllOps();
std::optional<OpKind> OpKindFromName(absl::string_view name);
const SlotInfo* FindSlot(OpKind kind, absl::string_view slot);
// The forms of `slot.axes`. REQUIRES: `slot` stands in the catalogue.
absl::Span<const SlotForm> FormsOf(const SlotInfo& slot);

}  // namespace twinforge

#endif  // TWINFORGE_IR_OP_H_
