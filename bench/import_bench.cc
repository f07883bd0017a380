// How long the graph of a large model takes, its headers read: 100 layers of 256 experts, 77,703 stored
// tensors.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include "base/check.h"
#include "importers/blueprint.h"
#include "importers/build_graph.h"
#include "importers/compile_layout.h"
#include "importers/config_view.h"
#include "importers/family.h"
#include "importers/importer.h"

namespace twinforge {
namespace {

constexpr absl::string_view kConfig = R"({
  "model_type": "qwen3_moe", "num_hidden_layers": 100, "num_experts": 256, "num_experts_per_tok": 8,
  "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
  "intermediate_size": 6144, "moe_intermediate_size": 768, "vocab_size": 151936, "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0, "hidden_act": "silu", "tie_word_embeddings": false, "torch_dtype": "bfloat16",
  "attention_bias": false, "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": []})";

template <typename T>
T Must(absl::StatusOr<T> value) {
  TWIN_CHECK(value.ok(), std::string(value.status().message()));
  return *std::move(value);
}

// Config and stored tensors in, graph out: the family's names expanded, programs, nodes, types, verified.
void BM_GraphFromHeaders(benchmark::State& state) {
  StoredTensors stored;
  {
    const Model model = Must(ModelFromConfigText(kConfig, "config.json"));
    for (const SourceTensor& tensor : model.sources) stored.emplace(tensor.name, tensor.source);
  }
  const JsonValue json = Must(ParseJson(kConfig, "config.json"));
  const ConfigView config(json, "config.json");
  const FamilySpec* family = FindFamily("qwen3_moe");
  for (auto _ : state) {
    Blueprint plan = Must(MakeBlueprint(*family, config, DType::kBF16));
    const std::vector<CompiledLayout> layouts = CompileLayouts(*family, config, plan);
    std::map<std::string, WeightPtr> programs = ProgramsFromFiles(layouts[0].layout, plan.types, stored);
    const Graph graph = Must(BuildGraph("qwen3_moe", std::move(plan), layouts[0], std::move(programs)));
    benchmark::DoNotOptimize(graph.nodes().size());
  }
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  state.counters["tensors"] = static_cast<double>(stored.size());
  state.counters["peak_MiB"] = static_cast<double>(usage.ru_maxrss) / 1024;
}
BENCHMARK(BM_GraphFromHeaders)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace twinforge

BENCHMARK_MAIN();
