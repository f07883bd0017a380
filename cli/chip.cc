// twinforge chip list|show|lint: the chip files.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "cli/verb.h"
#include "cost/score.h"
#include "report/table.h"

namespace twinforge {
namespace {

absl::StatusOr<Outcome> List() {
  Outcome outcome;
  Table table({"id", "chip", "also", "lanes", "mxu"});
  outcome.json["chips"] = Json::array();
  for (const ChipSummary& chip : AllChips()) {
    const std::string aliases = absl::StrJoin(chip.aliases, " ");
    table.Row({chip.id, chip.name, aliases, chip.lanes > 0 ? absl::StrCat(chip.lanes) : "-",
               chip.mxu > 0 ? absl::StrCat(chip.mxu) : "-"});
    outcome.json["chips"].push_back({{"id", chip.id}, {"name", chip.name}, {"aliases", chip.aliases}});
  }
  outcome.human = table.Text();
  return outcome;
}

absl::StatusOr<Outcome> Show(const std::string& id) {
  Outcome outcome;
  TWIN_ASSIGN_OR_RETURN(outcome.human, ChipText(id));
  outcome.json["text"] = outcome.human;
  return outcome;
}

absl::StatusOr<Outcome> Lint() {
  Outcome outcome;
  const std::vector<std::string> findings = LintChips();
  outcome.exit = findings.empty() ? ExitCode::kDone : ExitCode::kFindings;
  outcome.human = findings.empty() ? absl::StrCat(AllChips().size(), " chips, nothing to report\n")
                                   : absl::StrCat(absl::StrJoin(findings, "\n"), "\n");
  outcome.json["findings"] = findings;
  return outcome;
}

}  // namespace

void AddChip(CLI::App& app, Invocation& invocation) {
  static std::string what = "list";
  static std::string id;
  CLI::App* verb = AddVerb(app, invocation, "chip", "the chips that scores know, each number with its source",
                           "  twinforge chip list\n  twinforge chip show v6e\n  twinforge chip lint\n");
  verb->add_option("WHAT", what, "list, show or lint")->check(CLI::IsMember({"list", "show", "lint"}));
  verb->add_option("ID", id, "for show: a chip's id or alias");
  SetRun(verb, invocation, []() -> absl::StatusOr<Outcome> {
    TWIN_RETURN_IF_ERROR(CheckArgument("twinforge chip " + what, "ID", what == "show", id));
    return what == "show" ? Show(id) : what == "lint" ? Lint() : List();
  });
}

}  // namespace twinforge
