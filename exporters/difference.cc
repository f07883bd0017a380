#include "exporters/difference.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/json_reader.h"

namespace twinforge {
namespace {

constexpr int64_t kShown = 80;

// Numbers and words of the language as they are, all else as a quoted string.
std::string Shown(const JsonValue* value) {
  if (value == nullptr) return "absent";
  if (value->kind() == JsonValue::Kind::kString) return JsonQuoted(value->as_string(), kShown);
  const std::string text = value->Text(0);
  const bool nested = value->kind() == JsonValue::Kind::kArray || value->kind() == JsonValue::Kind::kObject;
  return nested || text.size() > kShown ? JsonQuoted(text, kShown) : text;
}

struct Differences {
  std::string first;
  int64_t count = 0;

  void Add(const std::string& path, const JsonValue* found, const JsonValue* right) {
    if (count++ > 0) return;
    first = absl::StrCat(JsonQuoted(path, 200), " is ", Shown(found), ", and should be ", Shown(right));
  }
};

void Walk(const std::string& path, const JsonValue* found, const JsonValue* right, Differences& differences) {
  const bool both = found != nullptr && right != nullptr;
  if (both && found->kind() == right->kind() && found->kind() == JsonValue::Kind::kObject) {
    const std::string prefix = path.empty() ? "" : path + ".";
    for (const auto& [key, value] : right->members())
      Walk(prefix + key, found->Find(key), &value, differences);
    for (const auto& [key, value] : found->members()) {
      if (right->Find(key) == nullptr) Walk(prefix + key, &value, nullptr, differences);
    }
  } else if (both && found->kind() == right->kind() && found->kind() == JsonValue::Kind::kArray) {
    const auto &a = found->items(), &b = right->items();
    for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
      Walk(absl::StrCat(path, "[", i, "]"), i < a.size() ? &a[i] : nullptr, i < b.size() ? &b[i] : nullptr,
           differences);
    }
  } else if (!both || found->Text(0) != right->Text(0)) {
    differences.Add(path, found, right);
  }
}

}  // namespace

std::string JsonDifference(const JsonValue& found, const JsonValue& right) {
  Differences differences;
  Walk("", &found, &right, differences);
  if (differences.count < 2) return differences.first;
  const int64_t more = differences.count - 1;
  return absl::StrCat(differences.first, "; ", more, more == 1 ? " more differs" : " more differ");
}

std::string DocumentDifference(absl::string_view found, absl::string_view right) {
  if (found == right) return "";
  const absl::StatusOr<JsonValue> a = ParseJson(found, ""), b = ParseJson(right, "");
  if (!a.ok() || !b.ok()) return !a.ok() ? "it is no JSON" : "it should be what is no JSON";
  const std::string difference = JsonDifference(*a, *b);
  return difference.empty() ? "both say the same, spelled or ordered otherwise" : difference;
}

}  // namespace twinforge
