// What `score` prints of a forecast, as JSON and for people.
#ifndef TWINFORGE_CLI_SCORE_REPORT_H_
#define TWINFORGE_CLI_SCORE_REPORT_H_

#include <optional>
#include <string>

#include "cli/verb.h"
#include "cost/forecast.h"

namespace twinforge {

Json IntervalJson(const Interval& interval);
Json ForecastJson(const Forecast& forecast);
Json ServingJson(const ServingForecast& forecast);
Json RefusalJson(const absl::Status& status);

// The ladder of a step; with a twin's, side by side. `who` names the single one.
std::string ForecastText(const Forecast& source, const std::optional<Forecast>& twin,
                         absl::string_view who = "source");
std::string ServingText(const std::string& chip, const ServingForecast& forecast);

}  // namespace twinforge

#endif  // TWINFORGE_CLI_SCORE_REPORT_H_
