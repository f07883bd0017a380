#include "importers/adapter_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "importers/config_view.h"
#include "re2/re2.h"

namespace twinforge {
namespace {

constexpr int64_t kQuoteLimit = 100;
constexpr int64_t kMostRank = int64_t{1} << 31;
constexpr char kRanks[] = "a rank, a whole number from 1 to 2^31";

// Some ways to begin an adapter (PiSSA, OLoRA, LoftQ, CorDA) take W apart first; the matrices then belong to
// what was left of it, which the adapter's folder does not hold.
absl::Status CheckInitialisation(const ConfigView& config) {
  const JsonValue* how = config.Find("init_lora_weights");
  if (how == nullptr || how->kind() == JsonValue::Kind::kBool) return absl::OkStatus();
  TWIN_ASSIGN_OR_RETURN(const std::string word, config.GetString("init_lora_weights", ""));
  for (const char* sound : {"gaussian", "eva", "orthogonal"}) {
    if (word == sound) return absl::OkStatus();
  }
  return Error(
      1421, config.place(),
      absl::StrCat("init_lora_weights ", JsonQuoted(word, kQuoteLimit), " may have changed the base weights"),
      "let peft convert it to a plain adapter first");
}

// Whether a setting says nothing: null, false, 0, "", [] or {}.
bool IsUnset(const JsonValue& value) {
  switch (value.kind()) {
    case JsonValue::Kind::kNull:
      return true;
    case JsonValue::Kind::kBool:
      return !value.as_bool();
    case JsonValue::Kind::kInteger:
    case JsonValue::Kind::kReal:
      return value.as_number() == 0;
    case JsonValue::Kind::kString:
      return value.as_string().empty();
    case JsonValue::Kind::kArray:
      return value.items().empty();
    case JsonValue::Kind::kObject:
      return value.members().empty();
  }
  return false;
}

// A key of peft's LoraConfig (0.21), or one that a later version may bring: read here, without a say in what
// the adapter computes, or unset. Anything else is refused by its name.
absl::Status CheckSetting(const ConfigView& config, const std::string& key, const JsonValue& value) {
  static const auto* const read =
      new std::set<std::string>{"peft_type",         "bias",           "r",
                                "lora_alpha",        "use_rslora",     "rank_pattern",
                                "alpha_pattern",     "target_modules", "exclude_modules",
                                "init_lora_weights", "layers_pattern", "layers_to_transform"};
  // Names, training, how a runtime works, and what only other settings look at.
  static const auto* const harmless = new std::set<std::string>{
      "auto_mapping", "base_model_name_or_path", "eva_config",   "fan_in_fan_out", "inference_mode",
      "lora_dropout", "megatron_core",           "peft_version", "revision",       "runtime_config",
      "task_type",    "qalora_group_size"};
  static const auto* const refused = new std::set<std::string>{"alora_invocation_tokens",
                                                               "arrow_config",
                                                               "corda_config",
                                                               "ensure_weight_tying",
                                                               "kasa_config",
                                                               "layer_replication",
                                                               "loftq_config",
                                                               "lora_bias",
                                                               "lora_ga_config",
                                                               "megatron_config",
                                                               "modules_to_save",
                                                               "monteclora_config",
                                                               "target_parameters",
                                                               "trainable_token_indices",
                                                               "use_bdlora",
                                                               "use_dora",
                                                               "use_qalora",
                                                               "velora_config"};
  if (read->count(key) + harmless->count(key) > 0 || IsUnset(value)) return absl::OkStatus();
  const bool known = refused->count(key) > 0;
  return Error(
      1421, config.place(),
      absl::StrCat(JsonQuoted(key, kQuoteLimit),
                   known ? " is not merged" : " is not known, and may change what the adapter computes"),
      known ? "let peft merge it, or convert it to a plain adapter first" : "remove it if it does not");
}

absl::Status CheckKind(const ConfigView& config) {
  TWIN_ASSIGN_OR_RETURN(const std::string kind, config.GetString("peft_type", "LORA"));
  if (kind != "LORA")
    return Error(1421, config.place(),
                 absl::StrCat("peft_type ", JsonQuoted(kind, kQuoteLimit), " is not merged"));
  TWIN_ASSIGN_OR_RETURN(const std::string bias, config.GetString("bias", "none"));
  if (bias != "none")
    return Error(1421, config.place(),
                 absl::StrCat("bias ", JsonQuoted(bias, kQuoteLimit), " is not merged"));
  for (const auto& [key, value] : config.json().members())
    TWIN_RETURN_IF_ERROR(CheckSetting(config, key, value));
  return CheckInitialisation(config);
}

// A rank, or -1.
int64_t RankIn(const JsonValue& value) {
  const bool whole = value.kind() == JsonValue::Kind::kInteger;
  return whole && value.as_integer() >= 1 && value.as_integer() <= kMostRank ? value.as_integer() : -1;
}

absl::Status CheckModulePattern(const ConfigView& config, absl::string_view key, const std::string& pattern) {
  RE2 re(pattern, RE2::Quiet);
  if (re.ok()) return absl::OkStatus();
  return Error(1421, config.place(),
               absl::StrCat(key, ": ", JsonQuoted(pattern, kQuoteLimit),
                            " is no pattern that is understood here: ", re.error()));
}

// Patterns on modules' ends with a number each, in the file's order; `read` makes nothing of a value that is
// none.
template <typename Number, typename Read>
absl::StatusOr<std::vector<std::pair<std::string, Number>>> ReadPatterns(const ConfigView& config,
                                                                         const char* key,
                                                                         absl::string_view wanted,
                                                                         Read read) {
  std::vector<std::pair<std::string, Number>> out;
  const JsonValue* patterns = config.Find(key);
  if (patterns == nullptr) return out;
  if (patterns->kind() != JsonValue::Kind::kObject) return config.WrongKind(key, wanted);
  for (const auto& [pattern, value] : patterns->members()) {
    const std::optional<Number> number = read(value);
    if (!number) return config.WrongKind(key, wanted);
    out.emplace_back(absl::StrCat("(.*\\.)?(", pattern, ")"), *number);
    TWIN_RETURN_IF_ERROR(CheckModulePattern(config, key, out.back().first));
  }
  return out;
}

bool IsNamed(const std::string& module, const std::string& name) {
  return module == name || absl::EndsWith(module, absl::StrCat(".", name));
}

}  // namespace

absl::StatusOr<AdapterConfig> AdapterConfig::ReadFrom(const std::string& path) {
  AdapterConfig out;
  out.place_ = absl::StrCat(path, "/adapter_config.json");
  std::error_code error;
  if (!std::filesystem::exists(out.place_, error))
    return Error(1420, path, "there is no adapter_config.json");
  TWIN_ASSIGN_OR_RETURN(std::string text, ReadTextFile(out.place_));
  TWIN_ASSIGN_OR_RETURN(const JsonValue json, ParseJson(text, out.place_));
  const ConfigView config(json, out.place_);
  if (json.kind() != JsonValue::Kind::kObject)
    return Error(1416, out.place_, "the config is not an object", "fetch the file again");
  TWIN_RETURN_IF_ERROR(CheckKind(config));
  Number alpha;
  alpha.add_key("lora_alpha");
  TWIN_ASSIGN_OR_RETURN(out.alpha_, config.Get(alpha));
  TWIN_ASSIGN_OR_RETURN(out.rank_stabilised_, config.GetFlag("use_rslora", false));
  if (const JsonValue* rank = config.Find("r"); rank != nullptr) {
    out.rank_ = RankIn(*rank);
    if (out.rank_ < 0) return config.WrongKind("r", kRanks);
  }
  const auto as_rank = [](const JsonValue& value) {
    return RankIn(value) < 0 ? std::nullopt : std::optional<int64_t>(RankIn(value));
  };
  TWIN_ASSIGN_OR_RETURN(out.rank_pattern_,
                        ReadPatterns<int64_t>(config, "rank_pattern",
                                              absl::StrCat("an object of numbers, each ", kRanks), as_rank));
  TWIN_ASSIGN_OR_RETURN(out.alpha_pattern_,
                        ReadPatterns<double>(config, "alpha_pattern", "an object of numbers that f32 holds",
                                             &ConfigView::NumberIn));
  TWIN_ASSIGN_OR_RETURN(out.targets_, ReadSelection(config, "target_modules"));
  out.targets_.all = out.targets_.all || config.Find("target_modules") == nullptr;
  TWIN_ASSIGN_OR_RETURN(out.excluded_, ReadSelection(config, "exclude_modules"));
  TWIN_RETURN_IF_ERROR(out.ReadLayers(config));
  return out;
}

absl::StatusOr<AdapterConfig::Selection> AdapterConfig::ReadSelection(const ConfigView& config,
                                                                      const std::string& key) {
  Selection out;
  const JsonValue* said = config.Find(key);
  if (said == nullptr) return out;
  if (said->kind() == JsonValue::Kind::kString) {
    out.pattern = said->as_string();
    out.all = out.pattern == "all-linear" && key == "target_modules";
    TWIN_RETURN_IF_ERROR(CheckModulePattern(config, key, out.pattern));
    return out;
  }
  TWIN_ASSIGN_OR_RETURN(out.names, config.GetWords(key));
  return out;
}

// One layer or a list of them, and the words that stand before a layer's number.
absl::Status AdapterConfig::ReadLayers(const ConfigView& config) {
  const char* const kLayers = "layers_to_transform";
  const JsonValue* layers = config.Find(kLayers);
  if (layers == nullptr) return absl::OkStatus();
  const bool list = layers->kind() == JsonValue::Kind::kArray;
  for (const JsonValue& layer : list ? layers->items() : std::vector<JsonValue>{*layers}) {
    if (layer.kind() != JsonValue::Kind::kInteger || layer.as_integer() < 0)
      return config.WrongKind(kLayers, "a layer's number, or a list of them");
    layers_.push_back(layer.as_integer());
  }
  some_layers_ = !layers_.empty();
  if (some_layers_ && !targets_.pattern.empty()) {
    return Error(1421, config.place(),
                 "layers_to_transform beside a pattern in target_modules has no meaning");
  }
  const JsonValue* words = config.Find("layers_pattern");
  if (words == nullptr) return absl::OkStatus();
  if (words->kind() == JsonValue::Kind::kString) {
    layer_patterns_ = {words->as_string()};
  } else {
    TWIN_ASSIGN_OR_RETURN(layer_patterns_, config.GetWords("layers_pattern"));
  }
  for (std::string& word : layer_patterns_) {
    word = absl::StrCat(".*\\.", word, "\\.(\\d+)\\..*");
    TWIN_RETURN_IF_ERROR(CheckModulePattern(config, "layers_pattern", word));
  }
  return absl::OkStatus();
}

double AdapterConfig::Factor(const std::string& module, int64_t rank) const {
  double alpha = alpha_;
  for (auto at = alpha_pattern_.rbegin(); at != alpha_pattern_.rend(); ++at) {
    if (RE2::FullMatch(module, at->first)) alpha = at->second;
  }
  const auto r = static_cast<double>(rank);
  return rank_stabilised_ ? alpha / std::sqrt(r) : alpha / r;
}

int64_t AdapterConfig::RankOf(const std::string& module) const {
  for (const auto& [pattern, rank] : rank_pattern_) {
    if (RE2::FullMatch(module, pattern)) return rank;
  }
  return rank_;
}

bool AdapterConfig::Selection::Holds(const std::string& module) const {
  if (all) return true;
  if (!pattern.empty()) return RE2::FullMatch(module, pattern);
  return std::any_of(names.begin(), names.end(), [&](const auto& name) { return IsNamed(module, name); });
}

bool AdapterConfig::InLayers(const std::string& module) const {
  // A module that target_modules names in full is meant in whatever layer it lies.
  const auto& names = targets_.names;
  if (!some_layers_ || std::find(names.begin(), names.end(), module) != names.end()) return true;
  const std::vector<std::string> any = {".*\\.[^.]*\\.(\\d+)\\..*"};
  for (const std::string& pattern : layer_patterns_.empty() ? any : layer_patterns_) {
    int64_t layer = 0;
    if (RE2::FullMatch(module, pattern, &layer))
      return std::find(layers_.begin(), layers_.end(), layer) != layers_.end();
  }
  return false;
}

std::string AdapterConfig::WhyNotFor(const std::string& module) const {
  if (excluded_.Holds(module)) return "exclude_modules";
  if (!targets_.Holds(module)) return "target_modules";
  return InLayers(module) ? "" : "layers_to_transform";
}

bool AdapterConfig::Wants(const std::string& module) const {
  return !targets_.all && WhyNotFor(module).empty();
}

absl::Status AdapterConfig::CheckNamed(const std::vector<std::string>& modules) const {
  for (const std::string& name : targets_.names) {
    const auto is_it = [&](const std::string& module) { return IsNamed(module, name); };
    if (std::any_of(modules.begin(), modules.end(), is_it)) continue;
    return Error(1422, place_,
                 absl::StrCat("target_modules: the model has no module ", JsonQuoted(name, kQuoteLimit)),
                 "the adapter was trained for another model");
  }
  return absl::OkStatus();
}

}  // namespace twinforge
