// Small graphs of every kind that transforms meet, at sizes that divide by nothing.
//
// Built from the Builder alone, so that a mistake in an importer and one in a transform
// can't cancel. Sources are named by role and lie as Storage says: "layers.0.attn.q" is [heads*head_dim,
// d_model].
#ifndef TWINFORGE_TESTS_TRANSFORMS_SMALL_MODELS_H_
#define TWINFORGE_TESTS_TRANSFORMS_SMALL_MODELS_H_

#include <string>
#include <vector>

#include "ir/graph.h"

namespace twinforge {

struct SmallSizes {
  int64_t layers = 2;
  int64_t d_model = 12;
  int64_t heads = 6;
  int64_t kv_heads = 2;
  int64_t head_dim = 10;
  int64_t d_ff = 14;
  int64_t vocab = 23;
  int64_t experts = 6;
  bool wide = false;  // parameters in f64: what is left of a difference is no rounding of weights
};

struct SmallModel {
  std::string name;
  Graph graph;
};

// Every kind at these sizes: llama with biases, tied; qwen3 (q and k norms; tied or not); gemma2 (offset
// norms, a scale of its own, soft caps); glm (partial, interleaved rotary); gpt2 (layer norms, no rotary,
// bundles, [in, out]); bert (a head with a bias); mixtral (experts stored apart); gpt_oss (sinks, biases,
// interleaved bundle); deepseek (latent attention, shared experts).
std::vector<SmallModel> SmallModels(const SmallSizes& sizes);

}  // namespace twinforge

#endif  // TWINFORGE_TESTS_TRANSFORMS_SMALL_MODELS_H_
