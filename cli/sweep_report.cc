#include "cli/sweep_report.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/diagnostic.h"
#include "cli/asymmetry_report.h"
#include "cli/score_report.h"
#include "cli/twin_report.h"
#include "report/table.h"

namespace twinforge {
namespace {

// Refusals that differ in nothing but numbers and places are one reason; the first of them speaks for all.
struct Reason {
  int code = 0;
  std::string example;
  int64_t variants = 0;
};

std::string WithoutNumbers(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!digit && !(c == '.' && !out.empty() && out.back() == '#'))
      out += c;
    else if (out.empty() || out.back() != '#')
      out += '#';
  }
  return out;
}

std::vector<Reason> ReasonsOf(const SweepReport& report) {
  std::map<std::pair<int, std::string>, size_t> known;
  std::vector<Reason> reasons;
  for (const RefusedVariant& row : report.refused) {
    const Diagnostic d = DiagnosticOf(row.why).value_or(Diagnostic());
    const auto [at, fresh] = known.emplace(std::pair(d.code, WithoutNumbers(d.message)), reasons.size());
    if (fresh) reasons.push_back({d.code, absl::StrCat(d.place, ": ", d.message), 0});
    ++reasons[at->second].variants;
  }
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const Reason& a, const Reason& b) { return a.variants > b.variants; });
  return reasons;
}

Json ValuesJson(const SweepReport& report, int64_t number) {
  const std::vector<std::string> values = ValuesOf(report.axes, number);
  Json json = Json::object();
  for (size_t i = 0; i < values.size(); ++i) json[report.axes[i].key] = values[i];
  return json;
}

Json BestJson(const SweepReport& report, const BestVariant& best) {
  const Variant& v = best.variant;
  const absl::string_view fidelity = FidelityName(v.fidelity);
  Json json = {{"variant", v.number}, {"values", ValuesJson(report, v.number)}};
  json["seconds"] = IntervalJson(v.seconds);
  json["seconds"]["bound"] = v.bound;
  json["chip_seconds_per_token"] = v.chip_seconds_per_token;
  json["bytes_per_device"] = v.parameter_bytes + v.cache_bytes;
  json["parameter_bytes"] = v.parameter_bytes;
  json["cache_bytes"] = v.cache_bytes;
  json["fidelity"] = std::string(fidelity.data(), fidelity.size());
  json["bound"] = BoundText(v.rounding);
  json["elements_added"] = v.elements_added;
  json["places"] = {{"rewritten", v.rewritten}, {"refused", v.places_refused}};
  json["gain"] = v.gain ? Json(*v.gain) : Json(nullptr);
  if (best.asymmetry)
    json["asymmetry"] = {{"ratio", IntervalJson(best.asymmetry->ratio)},
                         {"bounds", best.asymmetry->bound},
                         {"claimed", best.asymmetry->claimed}};
  json["alike"] = best.alike;
  return json;
}

std::string Ratio(const std::optional<double>& ratio) {
  return ratio ? absl::StrFormat("%.3f", *ratio) : std::string("-");
}

}  // namespace

Json SweepJson(const std::string& recipe, const ScoreFlags& step, const SweepQuestion& question,
               const SweepReport& report) {
  Json json = {{"chip", step.chip}};
  if (!question.against.empty()) json["against"] = question.against;
  json["recipe"] = recipe.empty() ? Json(nullptr) : Json(recipe);
  json["workload"] = {{"phase", step.phase}, {"context", step.context}};
  json["axes"] = Json::array();
  for (const SweepAxis& axis : report.axes)
    json["axes"].push_back({{"key", axis.key}, {"values", axis.values}});
  json["variants"] = report.variants;
  json["scored"] = report.scored;
  json["pareto"] = Json::array();
  for (const BestVariant& best : report.best) json["pareto"].push_back(BestJson(report, best));
  json["refused"] = {{"reasons", Json::array()}, {"variants", Json::array()}};
  for (const Reason& reason : ReasonsOf(report))
    json["refused"]["reasons"].push_back({{"code", absl::StrCat("TF", reason.code)},
                                          {"variants", reason.variants},
                                          {"example", reason.example}});
  for (const RefusedVariant& row : report.refused) {
    Json refusal = {{"variant", row.number}, {"values", ValuesJson(report, row.number)}};
    refusal.update(RefusalJson(row.why));
    json["refused"]["variants"].push_back(std::move(refusal));
  }
  return json;
}

std::string SweepText(const std::string& recipe, const ScoreFlags& step, const SweepQuestion& question,
                      const SweepReport& report) {
  std::string out =
      absl::StrCat(step.chip, ", ", step.phase, ", context ", step.context, ": ", report.variants,
                   " variants", recipe.empty() ? "" : absl::StrCat(" of ", recipe), ", ", report.scored,
                   " scored, ", report.refused.size(), " refused\n");
  for (const SweepAxis& axis : report.axes)
    absl::StrAppend(&out, "  ", axis.key, ": ", absl::StrJoin(axis.values, ", "), "\n");
  const bool against = !question.against.empty();
  std::vector<std::string> header = {"variant"};
  for (const SweepAxis& axis : report.axes) header.push_back(axis.key);
  for (const char* name :
       {"R8", "four in five", "chip time a token", "a device", "fidelity", "elements added", "source/twin"})
    header.push_back(name);
  if (against) header.push_back(absl::StrCat("over ", question.against));
  header.push_back("alike");
  Table table(header);
  for (const BestVariant& best : report.best) {
    const Variant& v = best.variant;
    std::vector<std::string> row = {absl::StrCat(v.number)};
    for (std::string& value : ValuesOf(report.axes, v.number)) row.push_back(std::move(value));
    const absl::string_view fidelity = FidelityName(v.fidelity);
    row.push_back(HumanSeconds(v.seconds.mid));
    row.push_back(absl::StrCat(HumanSeconds(v.seconds.low), " to ", HumanSeconds(v.seconds.high)));
    row.push_back(HumanSeconds(v.chip_seconds_per_token));
    row.push_back(HumanBytes(v.parameter_bytes + v.cache_bytes));
    row.push_back(absl::StrCat(std::string(fidelity), v.rounding > 0 ? " " : "", BoundText(v.rounding)));
    row.push_back(Grouped(v.elements_added));
    row.push_back(Ratio(v.gain));
    if (against)
      row.push_back(best.asymmetry ? absl::StrFormat("%.3f (%.3f to %.3f)", best.asymmetry->ratio.mid,
                                                     best.asymmetry->ratio.low, best.asymmetry->ratio.high)
                                   : std::string("-"));
    row.push_back(Grouped(best.alike));
    table.Row(row);
  }
  absl::StrAppend(
      &out, "Pareto set, ", report.best.size(), " of ", report.scored,
      ": no other is as good in all of seconds, chip time a token, bytes of one device, fidelity, "
      "elements added, bits of the formats",
      against ? ", the gain over the other chip's" : "", "\n", table.Text());
  for (const Reason& reason : ReasonsOf(report))
    absl::StrAppend(&out, "  refused ", reason.variants, reason.variants == 1 ? ": TF" : " like: TF",
                    reason.code, " ", reason.example, "\n");
  return out;
}

}  // namespace twinforge
