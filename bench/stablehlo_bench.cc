// How long a model of 100 layers takes to be written as StableHLO: dense, and with 256 experts in each layer.
#include <benchmark/benchmark.h>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "importers/importer.h"
#include "reference/stablehlo/stablehlo.h"

namespace twinforge {
namespace {

constexpr absl::string_view kSizes =
    R"("num_hidden_layers": 100, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
       "head_dim": 128, "intermediate_size": 14336, "vocab_size": 128256, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
       "hidden_act": "silu", "tie_word_embeddings": false, "torch_dtype": "bfloat16", "attention_bias": false)";
constexpr absl::string_view kDense = R"("model_type": "llama", "mlp_bias": false)";
constexpr absl::string_view kExperts =
    R"("model_type": "qwen3_moe", "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
       "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [])";

void Write(benchmark::State& state, absl::string_view family) {
  const auto model = ModelFromConfigText(absl::StrCat("{", kSizes, ", ", family, "}"), "config.json");
  TWIN_CHECK(model.ok(), std::string(model.status().message()));
  const StableHloOptions options{StableHloPhase::kDecode, 8, 1, 2048, std::nullopt};
  int64_t bytes = 0;
  for (auto _ : state) {
    const auto module = WriteStableHlo(model->graph, options);
    TWIN_CHECK(module.ok(), std::string(module.status().message()));
    bytes = static_cast<int64_t>(module->text.size());
  }
  state.counters["bytes"] = static_cast<double>(bytes);
}

void BM_Dense(benchmark::State& state) { Write(state, kDense); }
void BM_Experts(benchmark::State& state) { Write(state, kExperts); }
BENCHMARK(BM_Dense)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Experts)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace twinforge

BENCHMARK_MAIN();
