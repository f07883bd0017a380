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

// A file of its own replaces what a runtime would have derived from config.json, so that is carried over.
JsonValue DerivedGeneration(const JsonValue& config) {
  JsonValue made = JsonValue::Object();
  for (absl::string_view key : {"bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"}) {
    const JsonValue* value = config.Find(key);
    if (value != nullptr && !value->is_null()) made.Set(key, *value);
  }
  return made;
}

absl::Status BadGenerationConfig(const Model& model, absl::string_view key, absl::string_view message) {
  return Error(1415,
               absl::StrCat(model.root, model.root.empty() ? "" : "/", kGenerationConfigName,
                            key.empty() ? "" : ": ", key),
               message, "correct the file, or leave pad_vocab out: --skip-step pad_vocab");
}

// The tokens that the source's file suppresses, each one of its `vocab` words.
absl::StatusOr<std::vector<JsonValue>> SuppressedAlready(const Model& model, const JsonValue& config,
                                                         int64_t vocab) {
  const JsonValue* there = config.Find(kSuppressKey);
  if (there == nullptr || there->is_null()) return std::vector<JsonValue>();
  if (there->kind() != JsonValue::Kind::kArray) {
    return BadGenerationConfig(model, kSuppressKey, "is no list of token numbers");
  }
  for (size_t i = 0; i < there->items().size(); ++i) {
    const JsonValue& token = there->items()[i];
    const bool is_token =
        token.kind() == JsonValue::Kind::kInteger && token.as_integer() >= 0 && token.as_integer() < vocab;
    if (is_token) continue;
    return BadGenerationConfig(
        model, absl::StrCat(kSuppressKey, "[", i, "]"),
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
  JsonValue config = has_file ? model.generation_config : DerivedGeneration(model.config);
  if (config.kind() != JsonValue::Kind::kObject) return BadGenerationConfig(model, "", "is no object");
  TWIN_ASSIGN_OR_RETURN(std::vector<JsonValue> suppressed, SuppressedAlready(model, config, vocab->logical));
  for (int64_t token = vocab->logical; token < vocab->size; ++token) {
    suppressed.push_back(JsonValue::Integer(token));
  }
  config.Set(kSuppressKey, JsonValue::Array(std::move(suppressed)));
  return config;
}

}  // namespace twinforge
