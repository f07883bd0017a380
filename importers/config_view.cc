#include "importers/config_view.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/status_macros.h"

namespace twinforge {
namespace {

// Whether a value says yes: not false, 0, "" or an empty list.
bool Truthy(const JsonValue& value) {
  switch (value.kind()) {
    case JsonValue::Kind::kNull:
      return false;
    case JsonValue::Kind::kBool:
      return value.as_bool();
    case JsonValue::Kind::kInteger:
    case JsonValue::Kind::kReal:
      return value.as_number() != 0;
    case JsonValue::Kind::kString:
      return !value.as_string().empty();
    case JsonValue::Kind::kArray:
      return !value.items().empty();
    case JsonValue::Kind::kObject:
      return !value.members().empty();
  }
  return false;
}

constexpr char kRange[] = "a number from -3.4e38 to 3.4e38, as f32 holds,";
constexpr double kMostWhole = 9007199254740992.0;  // 2^53: beyond it doubles skip numbers

bool IsNumber(const JsonValue& value) {
  return value.kind() == JsonValue::Kind::kInteger || value.kind() == JsonValue::Kind::kReal;
}

// A number that f32 holds with room to multiply: beyond it runtimes compute with infinities. Truth values are
// none.
bool IsOrdinary(const JsonValue& value) {
  return IsNumber(value) && std::abs(value.as_number()) <= kMostConfigNumber;
}

}  // namespace

ConfigView::ConfigView(const JsonValue& config, std::string place)
    : config_(config), place_(std::move(place)) {}

const JsonValue* ConfigView::Find(absl::string_view key) const {
  if (key.empty()) return nullptr;
  const JsonValue* value = config_.FindPath(key);
  return value != nullptr && value->is_null() ? nullptr : value;
}

std::string ConfigView::FirstKey(const google::protobuf::RepeatedPtrField<std::string>& keys) const {
  for (const std::string& key : keys) {
    if (Find(key) != nullptr) return key;
  }
  return "";
}

std::string ConfigView::KeyToName(const google::protobuf::RepeatedPtrField<std::string>& keys) const {
  const std::string first = FirstKey(keys);
  return first.empty() && !keys.empty() ? keys.Get(0) : first;
}

absl::Status ConfigView::CheckCausal() const {
  TWIN_ASSIGN_OR_RETURN(const bool causal, GetFlag("is_causal", true));
  if (causal) return absl::OkStatus();
  return Error(1407, place_, "\"is_causal\": false is not supported for this family");
}

absl::Status ConfigView::CheckLayerTypes(absl::string_view all) const {
  const JsonValue* types = Find("layer_types");
  if (types == nullptr) return absl::OkStatus();
  if (types->kind() != JsonValue::Kind::kArray) return WrongKind("layer_types", "a list");
  for (const JsonValue& type : types->items()) {
    if (type.kind() == JsonValue::Kind::kString && type.as_string() == all) continue;
    return Error(1407, place_,
                 absl::StrCat("\"layer_types\" other than ", all, " is not supported for this family"));
  }
  return absl::OkStatus();
}

absl::Status ConfigView::CheckAgree(const google::protobuf::RepeatedPtrField<std::string>& keys) const {
  const std::string first = FirstKey(keys);
  for (const std::string& key : keys) {
    const JsonValue* value = Find(key);
    if (value == nullptr || value->Text(0) == Find(first)->Text(0)) continue;
    if (IsOrdinary(*value) && IsOrdinary(*Find(first)) && value->as_number() == Find(first)->as_number())
      continue;
    return Error(1406, place_, absl::StrCat("\"", first, "\" and \"", key, "\" say different things"),
                 "runtimes read one or the other: keep one");
  }
  return absl::OkStatus();
}

absl::Status ConfigView::WrongKind(absl::string_view key, absl::string_view wanted,
                                   absl::string_view hint) const {
  const JsonValue* value = config_.FindPath(key);
  std::string found = value == nullptr ? "absent" : value->Text(0);
  if (found.size() > 40) found = absl::StrCat(found.substr(0, 37), "...");
  return Error(1406, place_, absl::StrCat("\"", key, "\" is ", found, " where ", wanted, " is needed"), hint);
}

std::optional<double> ConfigView::NumberIn(const JsonValue& value) {
  return IsOrdinary(value) ? std::optional<double>(value.as_number()) : std::nullopt;
}

absl::StatusOr<double> ConfigView::GetNumber(absl::string_view key, double absent) const {
  const JsonValue* value = Find(key);
  if (value == nullptr) return absent;
  if (!IsNumber(*value)) return WrongKind(key, "a number");
  if (!IsOrdinary(*value)) return WrongKind(key, kRange);
  return value->as_number();
}

absl::StatusOr<bool> ConfigView::GetFlag(absl::string_view key, bool absent) const {
  const JsonValue* value = Find(key);
  if (value == nullptr) return absent;
  if (value->kind() != JsonValue::Kind::kBool) return WrongKind(key, "true or false");
  return value->as_bool();
}

absl::StatusOr<double> ConfigView::Get(const Number& number) const {
  for (const std::string& key : number.key()) {
    if (Find(key) != nullptr) return GetNumber(key, 0);
    if (number.unless_null() && config_.FindPath(key) != nullptr) return 0;
  }
  if (number.has_absent()) return number.absent();
  if (number.key().empty()) return 0;
  return Error(1405, place_, absl::StrCat("\"", number.key(0), "\" is missing"),
               "the model cannot be built without it");
}

absl::StatusOr<int64_t> ConfigView::GetWhole(const Number& number) const {
  TWIN_ASSIGN_OR_RETURN(double value, Get(number));
  if (value != std::floor(value)) return WrongKind(KeyToName(number.key()), "a whole number");
  if (std::abs(value) > kMostWhole) {
    return WrongKind(KeyToName(number.key()), "a whole number of at most 2^53");
  }
  return static_cast<int64_t>(value);
}

absl::StatusOr<double> ConfigView::GetWithin(const Number& number, double least, double most) const {
  TWIN_ASSIGN_OR_RETURN(const double value, Get(number));
  const std::string key = FirstKey(number.key());
  if (key.empty() || (value >= least && value <= most)) return value;
  return WrongKind(key, absl::StrCat("a number from ", least, " to ", most));
}

absl::StatusOr<int64_t> ConfigView::GetWholeWithin(const Number& number, int64_t least, int64_t most) const {
  TWIN_ASSIGN_OR_RETURN(const int64_t value, GetWhole(number));
  const std::string key = FirstKey(number.key());
  if (key.empty() || (value >= least && value <= most)) return value;
  return WrongKind(key, absl::StrCat("a whole number from ", least, " to ", most));
}

absl::StatusOr<std::string> ConfigView::GetString(absl::string_view key, absl::string_view absent) const {
  const JsonValue* value = Find(key);
  if (value == nullptr) return std::string(absent);
  if (value->kind() != JsonValue::Kind::kString) return WrongKind(key, "a string");
  return value->as_string();
}

absl::StatusOr<std::vector<double>> ConfigView::GetNumbers(absl::string_view key) const {
  std::vector<double> numbers;
  const JsonValue* value = Find(key);
  if (value == nullptr) return numbers;
  if (value->kind() != JsonValue::Kind::kArray) return WrongKind(key, "a list of numbers");
  for (const JsonValue& item : value->items()) {
    if (!IsNumber(item)) return WrongKind(key, "a list of numbers");
    if (!IsOrdinary(item)) return WrongKind(key, absl::StrCat("a list, each ", kRange));
    numbers.push_back(item.as_number());
  }
  return numbers;
}

absl::StatusOr<std::vector<std::string>> ConfigView::GetWords(absl::string_view key) const {
  std::vector<std::string> words;
  const JsonValue* value = Find(key);
  if (value == nullptr) return words;
  if (value->kind() != JsonValue::Kind::kArray) return WrongKind(key, "a list of words");
  for (const JsonValue& item : value->items()) {
    if (item.kind() != JsonValue::Kind::kString) return WrongKind(key, "a list of words");
    words.push_back(item.as_string());
  }
  return words;
}

absl::StatusOr<std::string> ConfigView::Architecture(absl::string_view absent) const {
  TWIN_ASSIGN_OR_RETURN(std::vector<std::string> names, GetWords("architectures"));
  return names.empty() ? std::string(absent) : names[0];
}

bool ConfigView::Holds(const Condition& condition, absl::string_view architecture) const {
  bool holds = true;
  if (!condition.architecture().empty()) {
    holds = condition.architecture() == architecture;
  } else if (!condition.key().empty()) {
    const JsonValue* value = config_.FindPath(condition.key());
    if (value == nullptr) {
      holds = condition.missing();
    } else if (condition.equals().empty()) {
      holds = Truthy(*value);
    } else {
      const std::string text = value->Text(0);
      holds =
          std::find(condition.equals().begin(), condition.equals().end(), text) != condition.equals().end();
    }
  }
  return holds != condition.negate();
}

absl::StatusOr<std::vector<bool>> ConfigView::Layers(const LayerSet& set, int64_t layers) const {
  std::vector<bool> in(layers, true);
  if (!set.types_key().empty() && Find(set.types_key()) != nullptr) {
    TWIN_ASSIGN_OR_RETURN(std::vector<std::string> types, GetWords(set.types_key()));
    if (static_cast<int64_t>(types.size()) != layers) {
      return WrongKind(set.types_key(), absl::StrCat("one word for each of ", layers, " layers"));
    }
    for (int64_t i = 0; i < layers; ++i) {
      if (types[i] != "full_attention" && types[i] != set.types_value()) {
        return Error(1407, place_,
                     absl::StrCat("\"", set.types_key(), "\": layers of type ", JsonQuoted(types[i], 100),
                                  " are not supported"));
      }
      in[i] = types[i] == set.types_value();
    }
    return in;
  }
  TWIN_ASSIGN_OR_RETURN(const int64_t from, GetWholeWithin(set.from(), 0, kMostConfigSize));
  int64_t step = 1;
  if (set.has_step()) {
    TWIN_ASSIGN_OR_RETURN(step, GetWholeWithin(set.step(), 1, kMostConfigSize));
  }
  for (int64_t i = 0; i < layers; ++i) {
    in[i] = i >= from && (i + 1) % step == 0 && (set.period() == 0 || i % set.period() == set.phase());
  }
  if (!set.except_key().empty()) {
    TWIN_ASSIGN_OR_RETURN(std::vector<double> except, GetNumbers(set.except_key()));
    for (double layer : except) {
      if (layer != std::floor(layer)) return WrongKind(set.except_key(), "a list of whole numbers");
      if (layer < 0 || layer >= static_cast<double>(layers)) continue;
      in[static_cast<int64_t>(layer)] = false;
    }
  }
  return in;
}

}  // namespace twinforge
