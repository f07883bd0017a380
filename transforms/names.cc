#include "transforms/names.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "ir/op.h"
#include "transforms/edit.h"

namespace twinforge {
namespace {

constexpr int64_t kQuoteLimit = 100;

// What fusing makes: a step may speak of it in models where nothing is fused.
constexpr absl::string_view kFused[] = {"qkv",     "qkv_bias", "gate_up", "gate_up_bias", "shared_gate_up",
                                        "lm_head", "embed"};

// The words between a pattern's bars; one word where bars may stand inside of something.
std::vector<std::string> WordsOf(const std::string& pattern) {
  if (pattern.find_first_of("([\\") != std::string::npos) return {pattern};
  return absl::StrSplit(pattern, '|');
}

absl::Status Unknown(absl::string_view field, const std::string& word, const std::set<std::string>& known) {
  const std::string nearest = Nearest(word, std::vector<std::string>(known.begin(), known.end()));
  return Error(1105, field, absl::StrCat(JsonQuoted(word, kQuoteLimit), " fits nothing that models have"),
               nearest.empty() ? "`twinforge inspect` and docs/transforms.md name what there is"
                               : absl::StrCat("did you mean \"", nearest, "\"?"));
}

}  // namespace

std::set<std::string> ParameterNames(const Graph& graph) {
  std::set<std::string> names(std::begin(kFused), std::end(kFused));
  for (const OpInfo& op : AllOps()) {
    for (const SlotInfo& slot : op.slots) names.emplace(slot.name);
  }
  for (const auto& [role, param] : graph.params()) names.emplace(LastPart(role));
  for (const Bundle& bundle : graph.bundles()) names.emplace(LastPart(bundle.role));
  return names;
}

std::set<std::string> AxisNames(const Graph& graph) {
  std::set<std::string> names;
  for (const OpInfo& op : AllOps()) {
    for (const SlotInfo& slot : op.slots) {
      for (const SlotForm& form : FormsOf(slot)) {
        for (const auto* axes : {&form.lead, &form.in, &form.out}) names.insert(axes->begin(), axes->end());
      }
    }
  }
  names.erase("*");
  for (const auto& [role, param] : graph.params()) {
    for (const ParamAxis& axis : param.type.axes) names.insert(axis.name);
  }
  return names;
}

absl::Status CheckPatternNames(absl::string_view field, const RE2& pattern,
                               const std::set<std::string>& known) {
  RE2::Options quiet;
  quiet.set_log_errors(false);
  for (const std::string& word : WordsOf(pattern.pattern())) {
    const RE2 one(word, quiet);
    bool fits = false;
    for (const std::string& name : known) fits = fits || RE2::FullMatch(name, one);
    if (!fits) return Unknown(field, word, known);
  }
  return absl::OkStatus();
}

absl::Status CheckName(absl::string_view field, const std::string& name, const std::set<std::string>& known) {
  return known.count(name) > 0 ? absl::OkStatus() : Unknown(field, name, known);
}

}  // namespace twinforge
