#include "exporters/generation_config.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/status_macros.h"

namespace twinforge {
namespace {

constexpr char kSuppressKey[] = "suppress_tokens";

// Where the vocabulary was padded: its size and how many of it are words.
const ParamAxis* PaddedVocabulary(const Graph& graph) {
  for (const auto& [role, param] : graph.params()) {
    for (const ParamAxis& axis : param.type.axes) {
      if (axis.name == "vocab" && axis.padded()) return &axis;
    }
  }
  return nullptr;
}

// What transformers takes from config.json where there is no generation_config.json: the attributes of its
// GenerationConfig, old and new (generation/configuration_utils.py, from_model_config).
const std::set<absl::string_view>& GenerationKeys() {
  static const auto* keys = new std::set<absl::string_view>{
      "assistant_confidence_threshold",
      "assistant_early_exit",
      "assistant_ensemble_weight",
      "assistant_lookbehind",
      "bad_words_ids",
      "begin_suppress_tokens",
      "bos_token_id",
      "cache_config",
      "cache_implementation",
      "compile_config",
      "constraints",
      "continuous_batching_config",
      "decoder_start_token_id",
      "disable_compile",
      "diversity_penalty",
      "do_sample",
      "dola_layers",
      "early_stopping",
      "encoder_no_repeat_ngram_size",
      "encoder_repetition_penalty",
      "eos_token_id",
      "epsilon_cutoff",
      "eta_cutoff",
      "exponential_decay_length_penalty",
      "force_words_ids",
      "forced_bos_token_id",
      "forced_decoder_ids",
      "forced_eos_token_id",
      "guidance_scale",
      "is_assistant",
      "length_penalty",
      "low_memory",
      "max_cache_len",
      "max_length",
      "max_matching_ngram_size",
      "max_new_tokens",
      "max_time",
      "min_length",
      "min_new_tokens",
      "min_p",
      "no_repeat_ngram_size",
      "num_assistant_tokens",
      "num_assistant_tokens_schedule",
      "num_beam_groups",
      "num_beams",
      "num_return_sequences",
      "output_attentions",
      "output_hidden_states",
      "output_logits",
      "output_scores",
      "pad_token_id",
      "penalty_alpha",
      "prefill_chunk_size",
      "prompt_lookup_num_tokens",
      "remove_invalid_values",
      "renormalize_logits",
      "repetition_penalty",
      "return_dict_in_generate",
      "return_legacy_cache",
      "sequence_bias",
      "speculation_type",
      "stop_strings",
      "suppress_tokens",
      "target_lookbehind",
      "temperature",
      "token_healing",
      "top_h",
      "top_k",
      "top_p",
      "typical_p",
      "use_cache",
      "use_mtp",
      "watermarking_config",
  };
  return *keys;
}

void AddGenerationKeys(const JsonValue& config, JsonValue& made) {
  for (const auto& [key, value] : config.members()) {
    if (!value.is_null() && GenerationKeys().count(key) > 0 && made.Find(key) == nullptr)
      made.Set(key, value);
  }
}

bool IsTrue(const JsonValue* value) {
  return value != nullptr && value->kind() == JsonValue::Kind::kBool && value->as_bool();
}

// A file of its own replaces what a runtime would have derived from config.json, so that is carried over: its
// keys, then those of the decoder's part, and what two old flags stand for.
JsonValue DerivedGeneration(const JsonValue& config) {
  JsonValue made = JsonValue::Object();
  AddGenerationKeys(config, made);
  const JsonValue* first = config.Find("bos_token_id");
  if (IsTrue(config.Find("force_bos_token_to_be_generated")) && first != nullptr)
    made.Set("forced_bos_token_id", *first);
  for (absl::string_view part : {"decoder", "generator", "text_config"}) {
    const JsonValue* inner = config.Find(part);
    if (inner == nullptr || inner->kind() != JsonValue::Kind::kObject || inner->members().empty()) continue;
    AddGenerationKeys(*inner, made);
    break;
  }
  for (absl::string_view key :
       {"output_attentions", "output_hidden_states", "output_scores", "output_logits"}) {
    if (IsTrue(made.Find(key))) made.Set("return_dict_in_generate", JsonValue::Bool(true));
  }
  return made;
}

// `file`: whose words they are.
absl::Status BadGenerationConfig(const Model& model, absl::string_view file, absl::string_view key,
                                 absl::string_view message) {
  return Error(1415,
               absl::StrCat(model.root, model.root.empty() ? "" : "/", file, key.empty() ? "" : ": ", key),
               message, "correct the file, or leave pad_vocab out: --skip-step pad_vocab");
}

// The tokens that the source's `file` suppresses, each one of its `vocab` words.
absl::StatusOr<std::vector<JsonValue>> SuppressedAlready(const Model& model, absl::string_view file,
                                                         const JsonValue& config, int64_t vocab) {
  const JsonValue* there = config.Find(kSuppressKey);
  if (there == nullptr || there->is_null()) return std::vector<JsonValue>();
  if (there->kind() != JsonValue::Kind::kArray) {
    return BadGenerationConfig(model, file, kSuppressKey, "is no list of token numbers");
  }
  for (size_t i = 0; i < there->items().size(); ++i) {
    const JsonValue& token = there->items()[i];
    const bool is_token =
        token.kind() == JsonValue::Kind::kInteger && token.as_integer() >= 0 && token.as_integer() < vocab;
    if (is_token) continue;
    return BadGenerationConfig(
        model, file, absl::StrCat(kSuppressKey, "[", i, "]"),
        absl::StrCat(JsonQuoted(token.Text(0), 60), " is no token of a vocabulary of ", vocab));
  }
  return there->items();
}

}  // namespace

absl::StatusOr<JsonValue> TwinGenerationConfig(const Model& model, const Graph& graph) {
  const std::vector<std::string>& files = model.companions;
  const bool has_file = std::find(files.begin(), files.end(), kGenerationConfigName) != files.end() ||
                        !model.generation_config.is_null();
  const ParamAxis* vocab = PaddedVocabulary(graph);
  if (vocab == nullptr || (graph.FindParam("lm_head") == nullptr && !has_file)) return JsonValue::Null();
  const absl::string_view file = has_file ? kGenerationConfigName : "config.json";
  JsonValue config = has_file ? model.generation_config : DerivedGeneration(model.config);
  if (config.kind() != JsonValue::Kind::kObject) return BadGenerationConfig(model, file, "", "is no object");
  TWIN_ASSIGN_OR_RETURN(std::vector<JsonValue> suppressed,
                        SuppressedAlready(model, file, config, vocab->logical));
  for (int64_t token = vocab->logical; token < vocab->size; ++token) {
    suppressed.push_back(JsonValue::Integer(token));
  }
  config.Set(kSuppressKey, JsonValue::Array(std::move(suppressed)));
  return config;
}

}  // namespace twinforge
