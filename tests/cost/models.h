// Decoders and encoders of any size, built from the Builder alone, for counting.
#ifndef TWINFORGE_TESTS_COST_MODELS_H_
#define TWINFORGE_TESTS_COST_MODELS_H_

#include <cstdint>

#include "ir/graph.h"

namespace twinforge {

// A size, and the smaller one it was padded from.
struct Sized {
  Sized(int64_t size) : size(size), logical(size) {}  // NOLINT: a number is a size
  Sized(int64_t size, int64_t logical) : size(size), logical(logical) {}
  int64_t size = 0;
  int64_t logical = 0;
};

struct ModelSizes {
  int64_t layers = 1;
  Sized d_model = 64;
  Sized heads = 4;
  Sized kv_heads = 2;
  Sized head_dim = 16;
  Sized d_ff = 96;
  Sized vocab = 320;
  int64_t window = 0;
  bool causal = true;
  bool tied = false;
  int64_t positions = 0;              // a table of learned positions, where above 0
  DType dtype = DType::kBF16;         // of embedding, norms and thereby activations
  DType kernel_dtype = DType::kBF16;  // of the layers' kernels
  // Experts instead of a gated feed-forward, where above 0.
  int64_t experts = 0;
  int64_t top_k = 2;
  int64_t members = 1;  // experts per group; 1: not grouped
  int64_t shared_ff = 0;
  // Latent attention instead of grouped-query attention, where above 0.
  int64_t kv_lora = 0;
  int64_t q_lora = 24;
  int64_t nope_dim = 16;
  int64_t rope_dim = 8;
  int64_t v_head_dim = 16;
  int64_t chunk = 0;  // of attention, where above 0
  // In attention's place in every second layer, from the first on.
  enum class Mixer { kAttention, kShortConv, kStateSpace, kDeltaRule };
  Mixer mixer = Mixer::kAttention;
  int64_t groups = 2;  // state_groups, key_heads
  int64_t state = 24;  // state, key_dim
  int64_t taps = 4;
};

Graph MakeModel(const ModelSizes& sizes);

// Llama 3.1 8B: 8,030,261,248 parameters.
ModelSizes Llama8B();

}  // namespace twinforge

#endif  // TWINFORGE_TESTS_COST_MODELS_H_
