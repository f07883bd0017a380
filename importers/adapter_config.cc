#include "importers/adapter_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

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

absl::Status CheckKind(const ConfigView& config) {
  TWIN_ASSIGN_OR_RETURN(const std::string kind, config.GetString("peft_type", "LORA"));
  if (kind != "LORA")
    return Error(1421, config.place(),
                 absl::StrCat("peft_type ", JsonQuoted(kind, kQuoteLimit), " is not merged"));
  TWIN_ASSIGN_OR_RETURN(const std::string bias, config.GetString("bias", "none"));
  if (bias != "none")
    return Error(1421, config.place(),
                 absl::StrCat("bias ", JsonQuoted(bias, kQuoteLimit), " is not merged"));
  for (const char* key : {"use_dora", "lora_bias", "modules_to_save", "alpha_pattern", "layer_replication",
                          "target_parameters", "trainable_token_indices", "use_qalora"}) {
    Condition set;
    set.set_key(key);
    if (config.Holds(set, "")) return Error(1421, config.place(), absl::StrCat(key, " is not merged"));
  }
  return absl::OkStatus();
}

// A rank, or -1.
int64_t RankIn(const JsonValue& value) {
  const bool whole = value.kind() == JsonValue::Kind::kInteger;
  return whole && value.as_integer() >= 1 && value.as_integer() < kMostRank ? value.as_integer() : -1;
}

absl::Status CheckModulePattern(const ConfigView& config, absl::string_view key, const std::string& pattern) {
  RE2 re(pattern, RE2::Quiet);
  if (re.ok()) return absl::OkStatus();
  return Error(1421, config.place(),
               absl::StrCat(key, ": ", JsonQuoted(pattern, kQuoteLimit),
                            " is no pattern that is understood here: ", re.error()));
}

absl::StatusOr<std::vector<std::pair<std::string, int64_t>>> ReadRankPattern(const ConfigView& config) {
  std::vector<std::pair<std::string, int64_t>> out;
  const JsonValue* patterns = config.Find("rank_pattern");
  if (patterns == nullptr) return out;
  if (patterns->kind() != JsonValue::Kind::kObject)
    return config.WrongKind("rank_pattern", "an object of ranks");
  for (const auto& [pattern, rank] : patterns->members()) {
    if (RankIn(rank) < 0) return config.WrongKind("rank_pattern", "an object of ranks, whole numbers from 1");
    out.emplace_back(absl::StrCat("(.*\\.)?(", pattern, ")"), RankIn(rank));
    TWIN_RETURN_IF_ERROR(CheckModulePattern(config, "rank_pattern", out.back().first));
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
  if (json.kind() != JsonValue::Kind::kObject) return Error(1421, out.place_, "it is not an object");
  TWIN_RETURN_IF_ERROR(CheckKind(config));
  Number alpha;
  alpha.add_key("lora_alpha");
  TWIN_ASSIGN_OR_RETURN(out.alpha_, config.Get(alpha));
  TWIN_ASSIGN_OR_RETURN(out.rank_stabilised_, config.GetFlag("use_rslora", false));
  if (const JsonValue* rank = config.Find("r"); rank != nullptr) {
    out.rank_ = RankIn(*rank);
    if (out.rank_ < 0) return config.WrongKind("r", "a rank, a whole number from 1");
  }
  TWIN_ASSIGN_OR_RETURN(out.rank_pattern_, ReadRankPattern(config));
  const JsonValue* targets = config.Find("target_modules");
  out.all_ = targets == nullptr;
  if (targets == nullptr) return out;
  if (targets->kind() == JsonValue::Kind::kString) {
    out.pattern_ = targets->as_string();
    out.all_ = out.pattern_ == "all-linear";
    TWIN_RETURN_IF_ERROR(CheckModulePattern(config, "target_modules", out.pattern_));
    return out;
  }
  TWIN_ASSIGN_OR_RETURN(out.names_, config.GetWords("target_modules"));
  return out;
}

double AdapterConfig::Factor(int64_t rank) const {
  const auto r = static_cast<double>(rank);
  return rank_stabilised_ ? alpha_ / std::sqrt(r) : alpha_ / r;
}

int64_t AdapterConfig::RankOf(const std::string& module) const {
  for (const auto& [pattern, rank] : rank_pattern_) {
    if (RE2::FullMatch(module, pattern)) return rank;
  }
  return rank_;
}

bool AdapterConfig::Targets(const std::string& module) const {
  if (all_) return true;
  if (!pattern_.empty()) return RE2::FullMatch(module, pattern_);
  return std::any_of(names_.begin(), names_.end(), [&](const auto& name) { return IsNamed(module, name); });
}

absl::Status AdapterConfig::CheckNamed(const std::vector<std::string>& modules) const {
  for (const std::string& name : names_) {
    const auto is_it = [&](const std::string& module) { return IsNamed(module, name); };
    if (std::any_of(modules.begin(), modules.end(), is_it)) continue;
    return Error(1422, place_,
                 absl::StrCat("target_modules: the model has no module ", JsonQuoted(name, kQuoteLimit)),
                 "the adapter was trained for another model");
  }
  return absl::OkStatus();
}

}  // namespace twinforge
