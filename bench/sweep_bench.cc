// How long a step of a deep model takes to score with nothing remembered, and how many variants of it a
// minute sweeps: one core, CPU time, beside the same roofline in plain Python.
//
//   sweep_bench [REPEATS]    run in the repository, where bench/peer_roofline.py lies
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "bench/fit_errors.h"
#include "cost/forecast.h"
#include "importers/importer.h"
#include "recipes/sweep.h"

namespace twinforge {
namespace {

// Llama 3.1 8B's layers, a hundred of them.
constexpr absl::string_view kDense = R"({
  "model_type": "llama", "num_hidden_layers": 100, "hidden_size": 4096, "num_attention_heads": 32,
  "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "rms_norm_eps": 1e-05,
  "rope_theta": 500000.0, "hidden_act": "silu", "tie_word_embeddings": false, "torch_dtype": "bfloat16"})";
// As many of Qwen3-30B-A3B's.
constexpr absl::string_view kSparse = R"({
  "model_type": "qwen3_moe", "num_hidden_layers": 100, "num_experts": 128, "num_experts_per_tok": 8,
  "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
  "intermediate_size": 6144, "moe_intermediate_size": 768, "vocab_size": 151936, "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0, "hidden_act": "silu", "tie_word_embeddings": false, "torch_dtype": "bfloat16",
  "attention_bias": false, "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": []})";
constexpr int kLayers = 100;
constexpr absl::string_view kRecipe =
    "step { pad_heads { multiple_of_chip: SHARDS } } step { pad_ffn { multiple: 128 shards_of_chip: SHARDS } "
    "} "
    "step { pad_vocab { multiple: 128 mask: REFERENCE } }";

template <typename T>
T Must(absl::StatusOr<T> value) {
  TWIN_CHECK(value.ok(), std::string(value.status().message()));
  return *std::move(value);
}

template <typename Work>
double CpuSeconds(const Work& work) {
  const std::clock_t begin = std::clock();  // of this process: others share the machine
  work();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

double PeerSeconds(int repeats) {
  const std::string command = absl::StrCat("python3 bench/peer_roofline.py ", kLayers, " ", repeats);
  FILE* const pipe = popen(command.c_str(), "r");
  double microseconds = 0;
  if (pipe == nullptr || fscanf(pipe, "%lf", &microseconds) != 1) microseconds = 0;
  if (pipe != nullptr) pclose(pipe);
  return 1e-6 * microseconds;
}

void Steps(const std::string& what, const Model& model, int repeats) {
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    const Workload workload{.batch = 16 + i % 16, .context = 2048, .shards = 8};
    seconds.push_back(
        CpuSeconds([&] { Must(ForecastStep(model.graph, nullptr, "v6e", workload, "vllm", "bf16")); }));
  }
  std::cout << absl::StrFormat("a step of %d %s layers, nothing remembered: %.3f ms\n", kLayers, what,
                               1e3 * Quantile(seconds, 0.5));
}

void Variants(const std::string& what, const Model& model, const std::vector<std::string>& words) {
  LoadedRecipe recipe = Must(ParseRecipe(kRecipe, "bench"));
  SweepQuestion question{.target = {.chip = "v6e", .shards = 8}, .stack = "vllm"};
  for (const std::string& word : words) recipe.sweeps.push_back(Must(ParseVary(word, "bench")));
  for (int64_t batch = 1; batch <= (what == "recipe keys" ? 1 : 32); ++batch)
    question.steps.push_back({.workload = {.batch = batch, .context = 2048, .shards = 8}, .format = "bf16"});
  if (question.steps.size() > 1) question.step_axes.push_back(Must(ParseVary("batch=1..32:1", "bench")));
  SweepReport report;
  const double seconds = CpuSeconds([&] { report = Must(SweepVariants(model, recipe, question)); });
  TWIN_CHECK(report.scored == report.variants,
             "a variant that is refused says nothing of how long one takes");
  std::cout << absl::StrFormat("%d variants of %d layers, %s: %.0f a minute, %d in the Pareto set\n",
                               report.variants, kLayers, what,
                               60 * static_cast<double>(report.variants) / seconds, report.best.size());
}

}  // namespace
}  // namespace twinforge

int main(int argc, char** argv) {
  using namespace twinforge;  // NOLINT: the whole program
  const int repeats = argc > 1 ? std::atoi(argv[1]) : 100;
  const Model dense = Must(ModelFromConfigText(kDense, "dense")),
              sparse = Must(ModelFromConfigText(kSparse, "sparse"));
  Steps("dense", dense, repeats);
  Steps("sparse", sparse, repeats);
  Variants("recipe keys", dense, {"pad_ffn.multiple=128..2048:128", "pad_vocab.multiple=128..2048:128"});
  Variants("recipe keys and batches", dense, {"pad_ffn.multiple=128..2048:128"});
  const double peer = PeerSeconds(50);
  std::cout << absl::StrFormat("the same roofline in Python: %.3f ms a step, %.0f a minute\n", 1e3 * peer,
                               60 / peer);
  return 0;
}
