// twinforge doctor: what this machine offers, and a block to paste into a bug report.
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "base/version.h"
#include "cli/verb.h"
#include "cost/score.h"
#include "importers/importer.h"
#include "recipes/recipe.h"
#include "report/table.h"

namespace twinforge {
namespace {

absl::StatusOr<Outcome> Doctor() {
  Outcome outcome;
  struct utsname system = {};
  uname(&system);
  struct sysinfo memory = {};
  sysinfo(&memory);
  struct statvfs disk = {};
  const bool has_disk = statvfs(".", &disk) == 0;
  const int64_t ram = static_cast<int64_t>(memory.totalram) * memory.mem_unit;
  const int64_t free =
      has_disk ? static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize) : 0;
  const std::vector<std::string> lint = LintChips();
  Table table({"what", "value"});
  table.Row({"twinforge", kVersion});
  table.Row({"system", absl::StrCat(system.sysname, " ", system.release, " ", system.machine)});
  table.Row({"threads", absl::StrCat(std::thread::hardware_concurrency())});
  table.Row({"memory", HumanBytes(ram)});
  table.Row({"disk free here", has_disk ? HumanBytes(free) : "unknown"});
  table.Row({"model types", absl::StrCat(SupportedModelTypes().size())});
  table.Row({"transforms", absl::StrCat(AllTransforms().size())});
  table.Row({"recipes", absl::StrCat(LibraryRecipes().size())});
  table.Row({"chips", absl::StrCat(AllChips().size(),
                                   lint.empty() ? ", lint clean"
                                                : absl::StrCat(", ", lint.size(), " lint findings"))});
  outcome.human = table.Text();
  outcome.json = {{"threads", std::thread::hardware_concurrency()},
                  {"memory_bytes", ram},
                  {"disk_free_bytes", free},
                  {"system", absl::StrCat(system.sysname, " ", system.release, " ", system.machine)},
                  {"model_types", SupportedModelTypes()},
                  {"chip_lint", lint}};
  return outcome;
}

}  // namespace

void AddDoctor(CLI::App& app, Invocation& invocation) {
  CLI::App* verb = AddVerb(app, invocation, "doctor", "what this machine offers, for a bug report",
                           "  twinforge doctor\n  twinforge doctor --format json\n");
  SetRun(verb, invocation, Doctor);
}

}  // namespace twinforge
