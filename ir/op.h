// The catalogue of operations: what each is called, which parameters it takes.
//
// A composite's meaning is its decomposition; a primitive's is its evaluation. This
// catalogue is what every walk over a graph relies on: parameter slots with their axes,
// so that a transform asks for "q" and its "head_dim", never for a position.
//
//   attention   q [d_model -> heads head_dim]  k, v [d_model -> kv_heads head_dim]
//               o [heads head_dim -> d_model]  optional biases, q_norm, k_norm, sinks
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
  // primitives
  kInput,       // a graph input
  kAdd,         // x + y
  kActivation,  // elementwise, ActivationAttrs
  kSlice,       // SliceAttrs
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

// Which message of OpAttrs an op carries.
enum class AttrsKind : uint8_t {
  kNone,
  kEmbedding,
  kNorm,
  kAttention,
  kLatentAttention,
  kMlp,
  kMoe,
  kLmHead,
  kActivation,
  kSlice,
};

struct OpInfo {
  OpKind kind;
  absl::string_view name;  // "gated_mlp"
  AttrsKind attrs = AttrsKind::kNone;
  bool composite = false;
  int operands = 1;  // activations it takes; -1: one or more
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
