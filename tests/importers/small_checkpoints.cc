#include "tests/importers/small_checkpoints.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/check.h"
#include "tests/importers/checkpoint_files.h"

namespace twinforge {
namespace {

std::string WithCommon(const std::string& rest, int64_t kv_heads = 2) {
  return absl::StrCat(
      R"({"vocab_size": 23, "hidden_size": 12, "num_hidden_layers": 3, "num_attention_heads": 6,
    "intermediate_size": 14, "max_position_embeddings": 32, "torch_dtype": "float32", "num_key_value_heads": )",
      kv_heads, ", ", rest, "}");
}

}  // namespace

const std::vector<SmallConfig>& SmallConfigs() {
  static const auto* const configs = new std::vector<SmallConfig>{
      {"llama", WithCommon(R"("model_type": "llama", "head_dim": 10, "rope_theta": 500.0)")},
      {"llama_biases", WithCommon(R"("model_type": "llama", "attention_bias": true, "mlp_bias": true)")},
      {"llama_tied",
       WithCommon(
           R"("model_type": "llama", "tie_word_embeddings": true, "rope_scaling": {"rope_type": "llama3",
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16})")},
      {"mistral", WithCommon(R"("model_type": "mistral", "sliding_window": 8, "head_dim": 10)")},
      {"qwen2",
       WithCommon(
           R"("model_type": "qwen2", "use_sliding_window": true, "sliding_window": 8, "max_window_layers": 1)")},
      {"qwen3", WithCommon(R"("model_type": "qwen3", "head_dim": 10, "tie_word_embeddings": true)")},
      {"gemma2",
       WithCommon(
           R"("model_type": "gemma2", "head_dim": 10, "query_pre_attn_scalar": 7, "sliding_window": 8)")},
      {"phi3", WithCommon(R"("model_type": "phi3", "head_dim": 8, "partial_rotary_factor": 0.75)")},
      {"mixtral", WithCommon(R"("model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2)")},
      {"qwen3_moe",
       WithCommon(R"("model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "head_dim": 10,
        "moe_intermediate_size": 5, "mlp_only_layers": [0], "norm_topk_prob": true)")},
      {"gpt_oss",
       WithCommon(
           R"("model_type": "gpt_oss", "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 10,
        "sliding_window": 8)")},
      {"deepseek_v3",
       WithCommon(R"("model_type": "deepseek_v3", "q_lora_rank": 7, "kv_lora_rank": 9, "qk_nope_head_dim": 5,
        "qk_rope_head_dim": 4, "v_head_dim": 6, "n_routed_experts": 8, "n_shared_experts": 2, "n_group": 4, "topk_group": 2,
        "moe_intermediate_size": 5, "num_experts_per_tok": 2, "first_k_dense_replace": 1)",
                  6)},
      {"deepseek_v3_lite", WithCommon(R"("model_type": "deepseek_v3", "q_lora_rank": null, "kv_lora_rank": 9,
        "qk_nope_head_dim": 5, "qk_rope_head_dim": 4, "v_head_dim": 6, "n_routed_experts": 8, "n_group": 1, "topk_group": 1,
        "moe_intermediate_size": 5, "num_experts_per_tok": 2, "first_k_dense_replace": 1, "attention_bias": true)",
                                      6)},
      {"gpt2",
       R"({"model_type": "gpt2", "vocab_size": 23, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_inner": 14,
        "n_positions": 16, "dtype": "float32", "architectures": ["GPT2LMHeadModel"]})"},
      {"bert", WithCommon(R"("model_type": "bert", "architectures": ["BertModel"])")},
      {"bert_masked", WithCommon(R"("model_type": "bert", "architectures": ["BertForMaskedLM"])")},
  };
  return *configs;
}

const std::string& SmallConfigOf(const std::string& name) {
  for (const SmallConfig& config : SmallConfigs()) {
    if (config.name == name) return config.json;
  }
  TWIN_CHECK(false, absl::StrCat("no small config is called ", name));
  std::abort();
}

Tensors TensorsOf(const Model& model, size_t layout, bool with_tied) {
  std::map<std::string, ParamType> types;
  for (const auto& [role, param] : model.graph.params()) types[role] = param.type;
  std::set<std::string> tied;
  for (const Tie& tie : model.layouts[layout].ties) {
    const JsonValue* key = model.config.Find(tie.key);
    if (key != nullptr ? key->as_bool() : tie.implied.value_or(false)) tied.insert(tie.role);
  }
  Tensors tensors;
  for (const LayoutTensor& tensor : model.layouts[layout].tensors) {
    if (!with_tied && tied.contains(tensor.parts[0].role)) continue;
    absl::StatusOr<Shape> shape = StoredShape(tensor, types);
    TWIN_CHECK(shape.ok(), std::string(shape.status().message()));
    for (int64_t i = 0; i < tensor.count(); ++i)
      tensors[tensor.NameAt(i)] = {types.at(tensor.parts[0].role).dtype, *shape, ""};
  }
  return tensors;
}

std::string SafetensorsFile(const Tensors& tensors) {
  std::vector<std::string> entries;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const size_t begin = data.size();
    const auto bytes = static_cast<size_t>(ElementCount(tensor.shape) * BitWidth(tensor.dtype) / 8);
    if (!tensor.bytes.empty()) {
      data += tensor.bytes;
    } else {
      for (size_t i = 0; i < bytes; ++i) data.push_back(static_cast<char>((begin + i) * 2654435761u >> 24));
    }
    entries.push_back(absl::StrCat("\"", name, "\":{\"dtype\":\"", SafetensorsName(tensor.dtype),
                                   "\",\"shape\":[", absl::StrJoin(tensor.shape, ","), "],\"data_offsets\":[",
                                   begin, ",", data.size(), "]}"));
  }
  return File(absl::StrCat("{", absl::StrJoin(entries, ","), "}"), data);
}

}  // namespace twinforge
