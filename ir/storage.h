// How parameters lie in a file: facts beside the mathematics, changed by MOVED transforms.
//
// The graph says what is computed from parameters in one canonical orientation. Storage
// says, per parameter, which way its kernel lies ([out, in] as torch writes it, or
// [in, out]), whether a stack of experts is one tensor or one per expert, which
// parameters are joined into one stored tensor (a bundle: fused qkv, fused gate and up), and
// which tensors of equal layers are stacked.
// Exporters execute it, the cost model prices it, and it never changes a value. That
// keeps fusing and orienting independent of every other rewrite: padding head_dim
// before or after fusing q, k and v gives the same twin.
#ifndef TWINFORGE_IR_STORAGE_H_
#define TWINFORGE_IR_STORAGE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace twinforge {

enum class Orientation : uint8_t {
  kOutIn,  // [lead..., out..., in...]: torch.nn.Linear
  kInOut,  // [lead..., in..., out...]: Conv1D of GPT-2, JAX kernels
};

struct Storage {
  Orientation orientation = Orientation::kOutIn;  // kernels only; kOutIn for vectors
  bool per_expert = false;                        // one tensor per index of a lead axis `expert`
  bool operator==(const Storage&) const = default;
};

// Parameters stored as one tensor.
struct Bundle {
  enum class Arrangement : uint8_t {
    kConcat,      // all of a, then all of b; with shards: a0 b0 a1 b1 ..., a_i the i-th of `shards` parts
    kInterleave,  // a[0] b[0] a[1] b[1] ... along the last out axis (gpt-oss gate and up)
  };
  std::string role;                  // "layers.0.attn.qkv"
  std::vector<std::string> members;  // roles, in order; joined along their first out axis (kConcat)
  Arrangement arrangement = Arrangement::kConcat;
  int64_t shards = 1;   // divides the joined axis of every member
  std::string laid_by;  // the step that joined them, "" = import; for diagnostics, no part of the value
  bool operator==(const Bundle& other) const {
    return role == other.role && members == other.members && arrangement == other.arrangement &&
           shards == other.shards;
  }
};

// Stored tensors that lie in one, with a leading axis for the layer: [layer, ...].
struct LayerStack {
  std::string role;  // "layers.0-31.attn.q"
  std::vector<std::string>
      members;          // roles of parameters, or of bundles, that are alike but for their values
  std::string laid_by;  // as a bundle's
  bool operator==(const LayerStack& other) const { return role == other.role && members == other.members; }
};

}  // namespace twinforge

#endif  // TWINFORGE_IR_STORAGE_H_
