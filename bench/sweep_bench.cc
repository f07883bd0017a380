// How long a step of a deep model takes to score with nothing remembered, and how many variants of it a minute
// sweeps: one core, CPU time, beside the same roofline in plain Python.
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
#include "recipes/run.h"

namespace twinforge {
namespace {

// Llama 3.1 8B's layers, a hundred of them.
constexpr absl::string_view kDeep = R"({
  "model_type": "llama", "num_hidden_layers": 100, "hidden_size": 4096, "num_attention_heads": 32,
  "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "rms_norm_eps": 1e-05,
  "rope_theta": 500000.0, "hidden_act": "silu", "tie_word_embeddings": false, "torch_dtype": "bfloat16"})";
constexpr int kLayers = 100;

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

void Steps(const Model& model, int repeats) {
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    const Workload workload{.batch = 16 + i % 16, .context = 2048, .shards = 8};
    seconds.push_back(CpuSeconds(
        [&] { Must(ForecastStep(model.graph, nullptr, "v6e", workload, "vllm", "bf16")); }));
  }
  const double ours = Quantile(seconds, 0.5), peer = PeerSeconds(50);
  std::cout << absl::StrFormat("a step of %d layers, nothing remembered: %.3f ms; the same roofline in "
                               "Python: %.3f ms, %.1f times as long\n",
                               kLayers, 1e3 * ours, 1e3 * peer, peer / ours);
}

void Twins(const Model& model) {
  const double all = CpuSeconds([&] {
    for (int i = 0; i < 20; ++i) Must(MakeTwin("tpu-exact-portable", {.chip = "v6e", .shards = 8, .kernel = "paged"}, model));
  });
  const double copy = CpuSeconds([&] {
    for (int i = 0; i < 20; ++i) { Model m = model; TWIN_CHECK(m.graph.nodes().size() > 3, ""); }
  });
  const double load = CpuSeconds([&] {
    for (int i = 0; i < 20; ++i) Must(LoadRecipe("tpu-exact-portable"));
  });
  std::cout << absl::StrFormat("twin %.3f ms, copy %.3f ms load %.3f ms\n", 50 * all, 50 * copy, 50 * load);
}

}  // namespace
}  // namespace twinforge

int main(int argc, char** argv) {
  const int repeats = argc > 1 ? std::atoi(argv[1]) : 100;
  const twinforge::Model model = twinforge::Must(twinforge::ModelFromConfigText(twinforge::kDeep, "deep"));
  twinforge::Steps(model, repeats);
  twinforge::Twins(model);
  return 0;
}
