#include "cli/advise_report.h"

#include <cstdlib>
#include <map>

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

std::string SourceName(CompiledSource source) {
  switch (source) {
    case CompiledSource::kUnknown:
      return "unknown";
    case CompiledSource::kPredicted:
      return "predicted";
    case CompiledSource::kRows:
      return "compiled rows";
  }
  return "";
}

std::string CompilerWord(const std::optional<int>& sign) {
  return !sign ? "unknown" : *sign < 0 ? "gain" : *sign > 0 ? "loss" : "no change";
}

template <typename T>
Json NumberOrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json WordJson(const RewriteWord& row) {
  const CompiledWord& word = row.word;
  Json json = {{"rewrite", row.rewrite}, {"of", row.of}, {"source", SourceName(word.source)}};
  if (word.source != CompiledSource::kUnknown) {
    json["sign"] = word.sign;
    json["low"] = word.low;
    json["high"] = word.high;
    json["rows"] = word.rows;
  }
  json["note"] = word.note;
  return json;
}

Json RowJson(const Advice& advice) {
  const absl::string_view verdict = Name(advice.verdict), fidelity = FidelityName(advice.fidelity);
  Json json = {{"recipe", advice.recipe},
               {"verdict", std::string(verdict.data(), verdict.size())},
               {"reason", advice.reason}};
  if (!advice.refusal.ok()) json["refused"] = RefusalJson(advice.refusal);
  json["steps"] = advice.steps;
  json["fidelity"] = std::string(fidelity.data(), fidelity.size());
  json["bound"] = BoundText(advice.rounding);
  json["places_refused"] = Json::array();
  for (const RefusedPlaces& row : advice.refused)
    json["places_refused"].push_back({{"step", row.step}, {"reason", row.reason}, {"places", row.places}});
  json["extra_bytes"] = {{"elements", advice.elements_added},
                         {"parameters", NumberOrNull(advice.parameter_bytes)},
                         {"cache", NumberOrNull(advice.cache_bytes)}};
  json["attacks"] = advice.attacks;
  json["gain"] = {{"attacked", NumberOrNull(advice.gain_at)},
                  {"bounds", NumberOrNull(advice.gain_at_bounds)},
                  {"last", advice.gain ? IntervalJson(*advice.gain) : Json(nullptr)},
                  {"layouts", advice.layout_gain ? IntervalJson(*advice.layout_gain) : Json(nullptr)}};
  json["seconds"] = NumberOrNull(advice.twin_seconds);
  json["compiler"] = CompilerWord(advice.compiler);
  json["words"] = Json::array();
  for (const RewriteWord& word : advice.words) json["words"].push_back(WordJson(word));
  json["notes"] = advice.notes;
  if (advice.asymmetry) json["asymmetry"] = AsymmetryJson(*advice.asymmetry);
  return json;
}

// What the compiler knows, rewrite by rewrite; then what it does not, by the reason.
std::string WordsText(const std::vector<RewriteWord>& words) {
  std::string text;
  std::map<std::string, std::vector<std::string>> unknown;
  for (const RewriteWord& row : words) {
    const CompiledWord& word = row.word;
    if (word.source == CompiledSource::kUnknown) {
      unknown[word.note].push_back(absl::StrCat(row.rewrite, " (", row.of, ")"));
      continue;
    }
    absl::StrAppend(&text,
                    absl::StrFormat("    %s (%s): %+.1f to %+.1f %% cycles, %s: %s\n", row.rewrite, row.of,
                                    100 * word.low, 100 * word.high, SourceName(word.source), word.note));
  }
  for (const auto& [note, rewrites] : unknown)
    absl::StrAppend(&text, "    the compiler's word on ", absl::StrJoin(rewrites, ", "),
                    " is unknown: ", note, "\n");
  return text;
}

std::string Ratio(const std::optional<double>& ratio) {
  return ratio ? absl::StrFormat("%.3f", *ratio) : std::string("-");
}

std::string BytesText(const std::optional<int64_t>& bytes) {
  if (!bytes) return "-";
  return *bytes == 0 ? "0" : absl::StrCat(*bytes > 0 ? "+" : "-", HumanBytes(std::abs(*bytes)));
}

std::string Details(const Advice& advice) {
  std::string text = absl::StrCat("  ", advice.recipe, ": ", Name(advice.verdict), "; ", advice.reason, "\n");
  if (!advice.steps.empty())
    absl::StrAppend(&text, "    rewrites: ", absl::StrJoin(advice.steps, ", "), "; ",
                    FidelityText(FidelityName(advice.fidelity), BoundText(advice.rounding)), "\n");
  absl::StrAppend(&text, WordsText(advice.words));
  for (const RefusedPlaces& row : advice.refused)
    absl::StrAppend(&text, "    ", row.step, " refused at ", row.places,
                    row.places == 1 ? " place: " : " places: ", row.reason, "\n");
  for (const std::string& note : advice.notes) absl::StrAppend(&text, "    ", note, "\n");
  if (advice.asymmetry)
    absl::StrAppend(&text, "    ", AsymmetryLine(*advice.asymmetry),
                    "    what would overturn this: ", OverturnText(*advice.asymmetry), "\n");
  return text;
}

// A model that the chip refuses as it is, and which recipes help.
std::string SourceText(const AdviceReport& report) {
  if (report.source.ok()) return absl::StrCat("  source: ", HumanSeconds(report.source_seconds), " a step\n");
  const Diagnostic d = DiagnosticOf(report.source).value_or(Diagnostic());
  std::vector<std::string> enabling;
  for (const Advice& advice : report.advice) {
    if (advice.verdict == AdviceVerdict::kEnables) enabling.push_back(advice.recipe);
  }
  return absl::StrCat("  source: ", d.place, ": ", d.message, "\n",
                      enabling.empty()
                          ? absl::StrCat("  no recipe changes that", d.hint.empty() ? "" : "; ", d.hint, "\n")
                          : absl::StrCat("  it runs as made by ", absl::StrJoin(enabling, " or "), "\n"));
}

}  // namespace

Json AdviceJson(const AdviceReport& report) {
  Json json = Json::object();
  json["source"] = report.source.ok() ? Json{{"seconds", report.source_seconds}}
                                      : Json{{"refused", RefusalJson(report.source)}};
  json["advice"] = Json::array();
  for (const Advice& advice : report.advice) json["advice"].push_back(RowJson(advice));
  return json;
}

std::string AdviceText(const AdviceReport& report) {
  std::string text = SourceText(report);
  Table table({"recipe", "verdict", "attacks", "gain there", "R3", "R8", "four in five", "layouts",
               "compiler", "parameters", "cache", "fidelity"});
  for (const Advice& a : report.advice) {
    const absl::string_view verdict = Name(a.verdict), fidelity = FidelityName(a.fidelity);
    table.Row({a.recipe, std::string(verdict.data(), verdict.size()), a.attacks.empty() ? "-" : a.attacks,
               Ratio(a.gain_at), Ratio(a.gain_at_bounds),
               a.gain ? absl::StrFormat("%.3f", a.gain->mid) : std::string("-"),
               a.gain ? absl::StrFormat("%.3f to %.3f", a.gain->low, a.gain->high) : std::string("-"),
               a.layout_gain ? absl::StrFormat("%.3f (%.3f to %.3f)", a.layout_gain->mid, a.layout_gain->low,
                                               a.layout_gain->high)
                             : std::string("-"),
               CompilerWord(a.compiler), BytesText(a.parameter_bytes), BytesText(a.cache_bytes),
               std::string(fidelity.data(), fidelity.size())});
  }
  absl::StrAppend(
      &text, table.Text(),
      "  gains: time of the source over the twin's; layouts: of R4 by the compiler's word (class C), "
      "which is no part of the estimate; bytes of one device\n");
  for (const Advice& advice : report.advice) absl::StrAppend(&text, Details(advice));
  return text;
}

}  // namespace twinforge
