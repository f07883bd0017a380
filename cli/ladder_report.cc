#include "cli/ladder_report.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/score_report.h"
#include "report/table.h"

namespace twinforge {
namespace {

constexpr size_t kDoubtsOfARung = 3;

std::string NameOf(const Doubt& doubt) {
  const absl::string_view name = Info(doubt.constant).name;
  return std::string(name.data(), name.size());
}

Json RungJson(const RungView& view) {
  Json json = IntervalJson(view.seconds);
  json["envelope"] = IntervalJson(view.envelope);
  json["certifiable"] = view.certifiable;
  json["doubts"] = Json::array();
  for (size_t i = 0; i < std::min(view.doubts.size(), kDoubtsOfARung); ++i)
    json["doubts"].push_back({{"constant", NameOf(view.doubts[i])}, {"share", view.doubts[i].share}});
  return json;
}

// A kind of op without products takes no time at R0 and R1, and has no gap.
std::optional<double> Gap(double above, double below) {
  if (below == 0) return std::nullopt;
  return above / below;
}

Json OrNull(const std::optional<double>& number) { return number ? Json(*number) : Json(nullptr); }

std::string GapText(const std::optional<double>& gap) {
  return gap ? absl::StrFormat("%.2f", *gap) : std::string("-");
}

std::string RungsText(const LadderViews& views) {
  Table table({"rung", "low", "mid", "high", "what to measure first"});
  for (const RungView& view : views.rungs) {
    std::string first;
    for (size_t i = 0; i < std::min(view.doubts.size(), kDoubtsOfARung); ++i) {
      absl::StrAppend(&first, i > 0 ? ", " : "", NameOf(view.doubts[i]),
                      absl::StrFormat(" %.0f %%", 100 * view.doubts[i].share));
    }
    table.Row({view.rung, HumanSeconds(view.seconds.low), HumanSeconds(view.seconds.mid),
               HumanSeconds(view.seconds.high),
               absl::StrCat(first, view.certifiable ? "" : "; not certifiable")});
  }
  return table.Text();
}

}  // namespace

void AddViewsJson(const LadderViews& views, Json& json) {
  for (const RungView& view : views.rungs) {
    for (Json& rung : json["ladder"]) {
      if (rung["rung"] == view.rung) rung.update(RungJson(view));
    }
  }
  const double last = json["ladder"].back()["seconds"];
  json["removal"] = Json::array();
  for (const Removal& removal : views.removals)
    json["removal"].push_back({{"without", removal.rung},
                               {"name", removal.name},
                               {"seconds", removal.seconds},
                               {"saves", last - removal.seconds}});
  json["mapping_gap"] = Json::array();
  for (const MappingGap& gap : views.gaps)
    json["mapping_gap"].push_back({{"op", gap.op},
                                   {"seconds", {{"R0", gap.r0}, {"R1", gap.r1}, {"R5", gap.r5}}},
                                   {"intrinsic", OrNull(Gap(gap.r1, gap.r0))},
                                   {"mapping", OrNull(Gap(gap.r5, gap.r1))}});
}

std::string ViewsText(absl::string_view who, const LadderViews& views) {
  const std::string lead = absl::StrCat("  ", who, who.empty() ? "" : ": ");
  std::string out = absl::StrCat(lead, "each estimate's rung, four in five between\n", RungsText(views));
  const double last = views.rungs.back().seconds.mid;
  Table removal({"without", "constraint", "stays", "saves"});
  for (const Removal& row : views.removals)
    removal.Row({row.rung, row.name, HumanSeconds(row.seconds), Percent(1 - row.seconds / last)});
  absl::StrAppend(&out, lead, "the last rung without one constraint\n", removal.Text());
  Table gaps({"op", "R5", "intrinsic R1/R0", "mapping R5/R1"});
  for (const MappingGap& gap : views.gaps)
    gaps.Row({gap.op, HumanSeconds(gap.r5), GapText(Gap(gap.r1, gap.r0)), GapText(Gap(gap.r5, gap.r1))});
  absl::StrAppend(&out, lead, "gaps by kind of op: the chip's own, and what a better mapping could recover\n",
                  gaps.Text());
  return out;
}

}  // namespace twinforge
