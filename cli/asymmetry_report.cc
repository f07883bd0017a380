#include "cli/asymmetry_report.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/score_report.h"
#include "report/table.h"

namespace twinforge {
namespace {

Json OverturnJson(const Overturn& overturn) {
  if (!overturn.found) return nullptr;
  return {{"chip", overturn.chip}, {"constant", overturn.constant}, {"times", overturn.times}};
}

std::string RatesText(const std::vector<PublishedRate>& rates, double PublishedRate::*member) {
  std::vector<std::string> parts;
  for (const PublishedRate& rate : rates) {
    if (rate.*member > 0) parts.push_back(absl::StrFormat("%s %.0f", rate.dtype, rate.*member / 1e12));
  }
  return parts.empty() ? "none published" : absl::StrCat(absl::StrJoin(parts, ", "), " T a second");
}

std::string ConstantsText(const Asymmetry& a) {
  std::string text;
  for (const SensitiveConstant& c : a.constants) {
    absl::StrAppend(&text, "    ", c.chip, " ", c.constant,
                    absl::StrFormat(" within its four in five: %.4f to %.4f", c.low, c.high),
                    c.assumed ? " (assumed: no row speaks for it)" : "", "\n");
  }
  return text.empty() ? "" : "  the constants it is most sensitive to:\n" + text;
}

}  // namespace

Json AsymmetryJson(const Asymmetry& a) {
  Json json = {{"chip", a.chip},
               {"against", a.against},
               {"bound", {{"ratio", a.bound}}},
               {"ratio", IntervalJson(a.ratio)},
               {"claimed", a.claimed}};
  json["rungs"] = Json::array();
  for (const AsymmetryRung& rung : a.rungs) {
    json["rungs"].push_back({{"rung", rung.rung},
                             {"mechanism", rung.mechanism},
                             {"class", std::string(1, rung.evidence)},
                             {"chip", rung.on_chip},
                             {"against", rung.on_against},
                             {"ratio", rung.ratio},
                             {"factor", rung.factor}});
  }
  json["constants"] = Json::array();
  for (const SensitiveConstant& c : a.constants) {
    json["constants"].push_back({{"chip", c.chip},
                                 {"constant", c.constant},
                                 {"spread", c.spread},
                                 {"assumed", c.assumed},
                                 {"low", c.low},
                                 {"high", c.high}});
  }
  json["overturn"] = {{"text", OverturnText(a)},
                      {"includes_one", OverturnJson(a.includes_one)},
                      {"turns_sign", OverturnJson(a.turns_sign)}};
  json["against_rates"] = Json::array();
  for (const PublishedRate& rate : a.rates) {
    Json row = {{"dtype", rate.dtype}};
    row["dense"] = rate.dense > 0 ? Json(rate.dense) : Json(nullptr);
    row["sparse24"] = rate.sparse > 0 ? Json(rate.sparse) : Json(nullptr);
    json["against_rates"].push_back(std::move(row));
  }
  return json;
}

std::string AsymmetryLine(const Asymmetry& a) {
  const std::string verdict = !a.claimed        ? "no asymmetry is claimed"
                              : a.ratio.low > 1 ? absl::StrCat("it favours ", a.chip)
                                                : absl::StrCat("it favours ", a.against);
  return absl::StrFormat(
      "asymmetric advantage of %s over %s: %.4f, four in five between %.4f and %.4f; at the bounds %.4f; "
      "%s\n",
      a.chip, a.against, a.ratio.mid, a.ratio.low, a.ratio.high, a.bound, verdict);
}

std::string AsymmetryText(const Asymmetry& a) {
  Table table({"rung", "mechanism", "class", a.chip, a.against, "ratio", "factor"});
  for (const AsymmetryRung& rung : a.rungs) {
    table.Row({rung.rung, rung.mechanism, std::string(1, rung.evidence),
               absl::StrFormat("%.4f", rung.on_chip), absl::StrFormat("%.4f", rung.on_against),
               absl::StrFormat("%.4f", rung.ratio), absl::StrFormat("%.4f", rung.factor)});
  }
  return absl::StrCat(
      AsymmetryLine(a), table.Text(),
      "  source/twin on either chip; factor: what of the last ratio is owed to the rung's step\n",
      ConstantsText(a), "  what would overturn this: ", OverturnText(a), "\n", "  ", a.against,
      " dense: ", RatesText(a.rates, &PublishedRate::dense), "\n", "  ", a.against,
      " with 2:4 zeros: ", RatesText(a.rates, &PublishedRate::sparse), "; no product here is\n");
}

}  // namespace twinforge
