#include "importers/rope_config.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/status_macros.h"

namespace twinforge {
namespace {

constexpr absl::string_view kNew = "rope_parameters";
constexpr absl::string_view kOld = "rope_scaling";

// Where the scaling's fields lie: "rope_parameters.", "rope_scaling.", or "" where there are none.
std::string Prefix(const ConfigView& config) {
  if (config.Find(kNew) != nullptr) return absl::StrCat(kNew, ".");
  if (config.Find(kOld) != nullptr) return absl::StrCat(kOld, ".");
  return "";
}

absl::StatusOr<RopeScaling::Kind> KindOf(const RopeSpec& spec, const ConfigView& config, std::string word) {
  const auto& aliases = spec.longrope_alias();
  if (std::find(aliases.begin(), aliases.end(), word) != aliases.end()) word = "longrope";
  const auto& taken = spec.kind();
  const bool allowed =
      word == "default" || taken.empty() || std::find(taken.begin(), taken.end(), word) != taken.end();
  const std::vector<std::pair<std::string, RopeScaling::Kind>> kinds = {
      {"default", RopeScaling::NONE}, {"linear", RopeScaling::LINEAR}, {"dynamic", RopeScaling::DYNAMIC},
      {"yarn", RopeScaling::YARN},    {"llama3", RopeScaling::LLAMA3}, {"longrope", RopeScaling::LONGROPE}};
  for (const auto& [name, kind] : kinds) {
    if (allowed && name == word) return kind;
  }
  return Error(
      1407, config.place(),
      absl::StrCat("\"rope_type\": rotary scaling of type ", JsonQuoted(word, 100), " is not supported here"),
      "known are default, linear, dynamic, yarn, llama3 and longrope, as far as the family takes them");
}

// A number of the scaling, above 0 where the config says it.
absl::StatusOr<double> Factor(const ConfigView& config, const std::string& key, double absent) {
  Number number;
  number.add_key(key);
  number.set_absent(absent);
  return config.GetWithin(number, kLeastConfigFactor, kMostConfigNumber);
}

// At least 0, and 0 where the config does not say it.
absl::StatusOr<double> FactorOrZero(const ConfigView& config, const std::string& key) {
  Number number;
  number.add_key(key);
  number.set_absent(0);
  return config.GetWithin(number, 0, kMostConfigNumber);
}

// A factor that the scaling's kind needs.
absl::StatusOr<double> Needed(const ConfigView& config, const std::string& key) {
  if (config.Find(key) == nullptr)
    return Error(1405, config.place(), absl::StrCat("\"", key, "\" is missing"));
  return Factor(config, key, 0);
}

absl::Status ReadYarn(const ConfigView& config, const std::string& at, RopeScaling& scaling) {
  // 0 is as good as absent, as in the library: `beta_fast or 32`.
  TWIN_ASSIGN_OR_RETURN(const double fast, FactorOrZero(config, at + "beta_fast"));
  TWIN_ASSIGN_OR_RETURN(const double slow, FactorOrZero(config, at + "beta_slow"));
  scaling.set_beta_fast(fast == 0 ? 32 : fast);
  scaling.set_beta_slow(slow == 0 ? 1 : slow);
  const std::pair<const char*, void (RopeScaling::*)(double)> optional[] = {
      {"mscale", &RopeScaling::set_mscale}, {"mscale_all_dim", &RopeScaling::set_mscale_all_dim}};
  for (const auto& [key, set] : optional) {
    if (config.Find(at + key) == nullptr) continue;
    TWIN_ASSIGN_OR_RETURN(const double value, FactorOrZero(config, at + key));
    (scaling.*set)(value);
  }
  if (config.Find(at + "attention_factor") != nullptr) {
    TWIN_ASSIGN_OR_RETURN(const double value, Factor(config, at + "attention_factor", 1));
    scaling.set_attention_factor(value);
  }
  if (config.Find(at + "truncate") != nullptr) {
    TWIN_ASSIGN_OR_RETURN(const bool truncate, config.GetFlag(at + "truncate", true));
    scaling.set_truncate(truncate);
  }
  return absl::OkStatus();
}

absl::Status ReadLongrope(const ConfigView& config, const std::string& at, int64_t rotary_dim,
                          RopeScaling& scaling) {
  const std::pair<const char*, google::protobuf::RepeatedField<double>*> lists[] = {
      {"short_factor", scaling.mutable_short_factor()}, {"long_factor", scaling.mutable_long_factor()}};
  for (const auto& [key, list] : lists) {
    TWIN_ASSIGN_OR_RETURN(std::vector<double> factors, config.GetNumbers(at + key));
    if (static_cast<int64_t>(factors.size()) != rotary_dim / 2) {
      return config.WrongKind(at + key, absl::StrCat("a list of ", rotary_dim / 2, " numbers"));
    }
    for (const double factor : factors) {
      if (factor < kLeastConfigFactor) return config.WrongKind(at + key, "a list of numbers above 0");
    }
    list->Assign(factors.begin(), factors.end());
  }
  if (config.Find(at + "factor") != nullptr) {
    TWIN_ASSIGN_OR_RETURN(const double factor, Factor(config, at + "factor", 1));
    scaling.set_factor(factor);
  }
  if (config.Find(at + "attention_factor") != nullptr) {
    TWIN_ASSIGN_OR_RETURN(const double factor, Factor(config, at + "attention_factor", 1));
    scaling.set_attention_factor(factor);
  }
  return absl::OkStatus();
}

// The length a model was trained at: beside the scaling wins over inside it, as in the library.
absl::Status ReadOriginalLength(const ConfigView& config, const std::string& at, int64_t max_positions,
                                RopeScaling& scaling) {
  Number length;
  length.add_key("original_max_position_embeddings");
  length.add_key(at + "original_max_position_embeddings");
  length.set_absent(static_cast<double>(max_positions));
  TWIN_ASSIGN_OR_RETURN(const int64_t whole, config.GetWholeWithin(length, 1, kMostConfigSize));
  scaling.set_original_max_position_embeddings(whole);
  return absl::OkStatus();
}

absl::StatusOr<RopeScaling> ScalingFromConfig(const RopeSpec& spec, const ConfigView& config,
                                              const std::string& at, int64_t rotary_dim,
                                              int64_t max_positions) {
  RopeScaling scaling;
  TWIN_ASSIGN_OR_RETURN(std::string older, config.GetString(at + "type", "default"));
  TWIN_ASSIGN_OR_RETURN(std::string word, config.GetString(at + "rope_type", older));
  TWIN_ASSIGN_OR_RETURN(RopeScaling::Kind kind, KindOf(spec, config, word));
  scaling.set_kind(kind);
  switch (kind) {
    case RopeScaling::LINEAR:
    case RopeScaling::DYNAMIC:
    case RopeScaling::YARN: {
      TWIN_ASSIGN_OR_RETURN(double factor, Needed(config, at + "factor"));
      scaling.set_factor(factor);
      if (kind != RopeScaling::YARN) break;
      TWIN_RETURN_IF_ERROR(ReadYarn(config, at, scaling));
      TWIN_RETURN_IF_ERROR(ReadOriginalLength(config, at, max_positions, scaling));
      break;
    }
    case RopeScaling::LLAMA3: {
      TWIN_ASSIGN_OR_RETURN(double factor, Needed(config, at + "factor"));
      TWIN_ASSIGN_OR_RETURN(double low, Needed(config, at + "low_freq_factor"));
      TWIN_ASSIGN_OR_RETURN(double high, Needed(config, at + "high_freq_factor"));
      if (high <= low) return config.WrongKind(at + "high_freq_factor", "a number above low_freq_factor");
      scaling.set_factor(factor);
      scaling.set_low_freq_factor(low);
      scaling.set_high_freq_factor(high);
      TWIN_RETURN_IF_ERROR(ReadOriginalLength(config, at, max_positions, scaling));
      break;
    }
    case RopeScaling::LONGROPE:
      TWIN_RETURN_IF_ERROR(ReadLongrope(config, at, rotary_dim, scaling));
      TWIN_RETURN_IF_ERROR(ReadOriginalLength(config, at, max_positions, scaling));
      break;
    default:
      break;  // NONE, and the generated sentinels of an open enum
  }
  return scaling;
}

// How many places of a head turn.
absl::StatusOr<int64_t> RotaryDim(const RopeSpec& spec, const ConfigView& config, const std::string& at,
                                  int64_t turning_dim) {
  double part = 1;
  for (const std::string& key : {std::string("partial_rotary_factor"), at + "partial_rotary_factor"}) {
    if (config.Find(key) == nullptr) continue;
    TWIN_ASSIGN_OR_RETURN(part, Factor(config, key, 1));
    if (part > 1) return config.WrongKind(key, "a number up to 1");
  }
  if (part != 1 && spec.partial_key().empty()) {
    return Error(1407, config.place(), "partial_rotary_factor other than 1 is not supported for this family");
  }
  const int64_t dim = static_cast<int64_t>(static_cast<double>(turning_dim) * part);
  if (dim < 2 || dim % 2 != 0 || dim > turning_dim) {
    return Error(1414, config.place(),
                 absl::StrCat("rotation of ", dim, " of a head's ", turning_dim,
                              " places is not an even number between 2 and all"));
  }
  return dim;
}

}  // namespace

std::vector<std::string> ThetaKeys() {
  return {absl::StrCat(kNew, ".rope_theta"), "rope_theta", absl::StrCat(kOld, ".rope_theta")};
}

std::string ThetaKey(const ConfigView& config) {
  const std::string newer = absl::StrCat(kNew, ".rope_theta");
  if (config.Find("rope_theta") != nullptr) return "rope_theta";
  return config.Find(kNew) != nullptr ? newer : "rope_theta";
}

absl::StatusOr<Rope> RopeFromConfig(const RopeSpec& spec, const ConfigView& config, int64_t turning_dim,
                                    absl::string_view architecture) {
  // A config without any rotary settings means the class's own, which only some classes have.
  if (!spec.scaling_absent().empty() && Prefix(config).empty()) {
    TWIN_ASSIGN_OR_RETURN(JsonValue defaults, ParseJson(spec.scaling_absent(), "family file"));
    JsonValue filled = config.json();
    filled.Set(kOld, std::move(defaults));
    RopeSpec rest = spec;
    rest.clear_scaling_absent();
    return RopeFromConfig(rest, ConfigView(filled, config.place()), turning_dim, architecture);
  }
  const std::string at = Prefix(config);
  for (absl::string_view key : {kNew, kOld}) {
    const JsonValue* value = config.Find(key);
    if (value == nullptr) continue;
    if (value->kind() != JsonValue::Kind::kObject) return config.WrongKind(key, "an object");
    for (const auto& [name, member] : value->members()) {
      if (member.kind() != JsonValue::Kind::kObject) continue;
      return Error(
          1407, config.place(),
          absl::StrCat("rotary settings by layer type (", JsonQuoted(absl::StrCat(key, ".", name), 100),
                       ") are not supported for this family"));
    }
  }
  Rope rope;
  rope.set_style(spec.style());
  if (spec.has_interleaved()) {
    rope.set_style(config.Holds(spec.interleaved(), architecture) ? Rope::INTERLEAVED : Rope::HALVES);
  }
  Number theta, scaling;
  for (std::string& key : ThetaKeys()) theta.add_key(std::move(key));
  theta.set_absent(spec.theta());
  TWIN_RETURN_IF_ERROR(config.CheckAgree(theta.key()));
  for (absl::string_view key : {kNew, kOld}) scaling.add_key(std::string(key));
  TWIN_RETURN_IF_ERROR(config.CheckAgree(scaling.key()));
  TWIN_ASSIGN_OR_RETURN(const double base, config.Get(theta));
  if (base <= 1) return config.WrongKind(config.FirstKey(theta.key()), "a number above 1");
  rope.set_theta(base);
  TWIN_ASSIGN_OR_RETURN(int64_t rotary_dim, RotaryDim(spec, config, at, turning_dim));
  rope.set_rotary_dim(rotary_dim);
  TWIN_ASSIGN_OR_RETURN(int64_t max_positions,
                        config.GetWholeWithin(spec.max_positions(), 1, kMostConfigSize));
  rope.set_max_position_embeddings(max_positions);
  TWIN_ASSIGN_OR_RETURN(*rope.mutable_scaling(),
                        ScalingFromConfig(spec, config, at, rotary_dim, max_positions));
  return rope;
}

}  // namespace twinforge
