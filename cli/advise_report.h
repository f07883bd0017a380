// What `advise` prints, as JSON and for people.
#ifndef TWINFORGE_CLI_ADVISE_REPORT_H_
#define TWINFORGE_CLI_ADVISE_REPORT_H_

#include <string>

#include "cli/verb.h"
#include "recipes/advise.h"

namespace twinforge {

Json AdviceJson(const AdviceReport& report);
std::string AdviceText(const AdviceReport& report);

}  // namespace twinforge

#endif  // TWINFORGE_CLI_ADVISE_REPORT_H_
