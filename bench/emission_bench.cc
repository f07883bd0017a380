// How long a model of 100 layers takes to be written as code: JAX and PyTorch to be read, StableHLO for a
// compiler (prefill and decode), and all of it; dense, and with 256 experts in each layer.
#include <benchmark/benchmark.h>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "importers/importer.h"
#include "ir/layout.h"
#include "reference/reference.h"
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

// Bytes of both modules of reference/.
int64_t WriteCode(const Graph& graph) {
  const auto files = ReferenceFiles(graph, RolesFromTwin(graph));
  TWIN_CHECK(files.ok() && files->size() == 2, std::string(files.status().message()));
  int64_t bytes = 0;
  for (const ReferenceFile& file : *files) bytes += static_cast<int64_t>(file.content.size());
  return bytes;
}

int64_t WriteForCompiler(const Graph& graph, StableHloPhase phase) {
  const int64_t sequence = phase == StableHloPhase::kDecode ? 1 : 2048;
  const auto module = WriteStableHlo(graph, {phase, 8, sequence, 2048, std::nullopt});
  TWIN_CHECK(module.ok(), std::string(module.status().message()));
  return static_cast<int64_t>(module->text.size());
}

int64_t WriteBothPhases(const Graph& graph) {
  return WriteForCompiler(graph, StableHloPhase::kPrefill) + WriteForCompiler(graph, StableHloPhase::kDecode);
}

int64_t WriteAll(const Graph& graph) { return WriteCode(graph) + WriteBothPhases(graph); }

void Write(benchmark::State& state, absl::string_view family, int64_t (*write)(const Graph&)) {
  const auto model = ModelFromConfigText(absl::StrCat("{", kSizes, ", ", family, "}"), "config.json");
  TWIN_CHECK(model.ok(), std::string(model.status().message()));
  int64_t bytes = 0;
  for (auto _ : state) bytes = write(model->graph);
  state.counters["bytes"] = static_cast<double>(bytes);
}

BENCHMARK_CAPTURE(Write, dense_jax_and_pytorch, kDense, WriteCode)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Write, dense_stablehlo, kDense, WriteBothPhases)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Write, dense_all, kDense, WriteAll)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Write, experts_jax_and_pytorch, kExperts, WriteCode)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Write, experts_stablehlo, kExperts, WriteBothPhases)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Write, experts_all, kExperts, WriteAll)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace twinforge

BENCHMARK_MAIN();
