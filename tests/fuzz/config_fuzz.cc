// Any bytes: a config ends in a model that comes back as it was, or in a diagnostic about the config.
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "importers/importer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const auto model = twinforge::ModelFromConfigText(text, "fuzz.json");
  if (!model.ok()) {
    const auto diagnostic = twinforge::DiagnosticOf(model.status());
    TWIN_CHECK(diagnostic.has_value(), "a refusal without a diagnostic");
    TWIN_CHECK(diagnostic->code >= 1200 && diagnostic->code < 1500, std::string(model.status().message()));
    return 0;
  }
  const auto files = twinforge::FilesFromGraph(model->layouts[0], model->graph);
  TWIN_CHECK(files.ok(), std::string(files.status().message()));
  return 0;
}

extern const char* const kSeeds[];
extern const size_t kSeedCount;
const char* const kSeeds[] = {
    R"({"model_type": "llama", "vocab_size": 9, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 6, "rope_scaling": {"type": "yarn", "factor": 4.0}, "tie_word_embeddings": true})",
    R"({"model_type": "qwen3_moe", "vocab_size": 9, "hidden_size": 4, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "intermediate_size": 6, "num_experts": 2, "moe_intermediate_size": 3,
        "num_experts_per_tok": 1, "mlp_only_layers": [0], "torch_dtype": "float16"})",
    R"({"model_type": "deepseek_v3", "vocab_size": 9, "hidden_size": 4, "num_hidden_layers": 2, "n_group": 2,
        "num_attention_heads": 2, "intermediate_size": 6, "n_routed_experts": 4, "q_lora_rank": null, "topk_group": 1,
        "first_k_dense_replace": 1, "num_experts_per_tok": 2, "rope_scaling": {"type": "yarn", "factor": 4,
        "mscale_all_dim": 1.0}})",
    R"({"model_type": "gemma2", "vocab_size": 9, "hidden_size": 4, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 6, "query_pre_attn_scalar": 3, "layer_types": ["full_attention", "sliding_attention"]})",
    R"({"model_type": "bert", "vocab_size": 9, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 6, "architectures": ["BertForMaskedLM"], "hidden_act": "gelu"})",
};
const size_t kSeedCount = sizeof(kSeeds) / sizeof(kSeeds[0]);
