// What `score` prints of the other views of a ladder: each estimate's interval, the removal view, mapping
// gaps.
#ifndef TWINFORGE_CLI_LADDER_REPORT_H_
#define TWINFORGE_CLI_LADDER_REPORT_H_

#include <string>

#include "cli/verb.h"
#include "cost/views.h"

namespace twinforge {

// Adds to what ForecastJson() made: intervals within "ladder", "removal", "mapping_gap".
void AddViewsJson(const LadderViews& views, Json& json);

// `who` is put before each table's title: "twin".
std::string ViewsText(absl::string_view who, const LadderViews& views);

}  // namespace twinforge

#endif  // TWINFORGE_CLI_LADDER_REPORT_H_
