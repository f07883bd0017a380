// What the TPU compiler says of a rewrite: the third opinion beside bound and estimate.
//
//   WordOfCompiler({.chip = "v6e", .rewrite = "orient_weights", .shape = Llama-3.1-8B, .step = decode})
//     compiled rows   -6.2 % cycles      "v6e llama8b decode8 qkv_oi_rest_io", ...
//
// Class C: the compiler's own cycle model of whole layers, never a measurement. Where the same model was
// compiled with that rewrite, its rows answer. Else the predictor answers (compiled_cycles.h), if its signs
// held for models that it had not seen; its interval is what those errors were. Else nobody answers, and no
// number is made up.
#ifndef TWINFORGE_COST_COMPILED_H_
#define TWINFORGE_COST_COMPILED_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cost/compiled_layer.h"

namespace twinforge {

// One layer of a model (or its head: shape.vocab and d_model alone) and one rewrite of it, by the name of
// docs/transforms.md:
//
//   orient_weights      o, feed-forward, experts, router to [in, out]; q, k, v stay [out, in]
//   fuse_qkv            fuse_gate_up
//   pad_head_dim        `to`: the head_dim
//   pad_ffn             `to`: the width (of one expert)
//   group_experts       `to`: experts in a group
//   replicate_kv_heads  with pad_heads, under tensor parallelism; `to`: the kv heads
//   pad_vocab           `to`: the vocabulary
struct CompiledQuestion {
  std::string chip;     // an id or alias
  std::string rewrite;  // as above
  CompiledShape shape;  // as published
  CompiledStep step;
  int64_t shards = 1;
  int64_t to = 0;
  bool in_out = false;   // o, feed-forward and head lie [in, out] already
  bool qkv_too = false;  // orient_weights: q, k, v as well
};

enum class CompiledSource : uint8_t {
  kUnknown,    // never compiled, and no prediction that has shown its worth
  kPredicted,  // repeated by constants; the same rewrite of other models came out right
  kRows,       // compiled rows of this very model
};

struct CompiledWord {
  CompiledSource source = CompiledSource::kUnknown;
  int sign = 0;                   // of the change of cycles: -1 a gain, +1 a loss, 0 within 1 % or undecided
  double low = 0;                 // the change: -0.06 is 6 % fewer cycles
  double high = 0;                // all rows, or the predicted interval, lie between
  std::vector<std::string> rows;  // the compiled rows that it rests on
  std::string note;               // for a reader: phases that were compiled, how often predictions were right
};

// Refuses an unknown chip (TF1701) and sizes that are no sizes (TF1703). A chip, rewrite or workload that the
// compiler was never asked about is kUnknown with a note, no refusal.
absl::StatusOr<CompiledWord> WordOfCompiler(const CompiledQuestion& question);

// ---- kernels

enum class KernelAnswer : uint8_t { kUnknown, kAccepts, kRefuses };

// Whether a Pallas kernel of jax 0.10.2 takes this head_dim in bf16: paged_attention, ragged_paged_attention,
// flash_attention, splash_attention, megablox_gmm. kUnknown: another kernel, or a head_dim that was not
// tried.
KernelAnswer KernelAccepts(absl::string_view kernel, int64_t head_dim);

// The least head_dim of those tried, not below `head_dim`, that the kernel takes; 0: none is known.
int64_t KernelHeadDim(absl::string_view kernel, int64_t head_dim);

}  // namespace twinforge

#endif  // TWINFORGE_COST_COMPILED_H_
