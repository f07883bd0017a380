#include "cli/score_flags.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/diagnostic.h"

namespace twinforge {
namespace {

// Flags that only some phases take; all others go with every phase.
struct OfPhases {
  absl::string_view flag;
  absl::string_view phases;
};
constexpr OfPhases kOfPhases[] = {
    {"--batch", "prefill decode mixed train"},
    {"--context", "prefill decode mixed train"},
    {"--past", "prefill mixed"},
    {"--chunk", "mixed"},
    {"--microbatches", "prefill decode mixed train"},
    {"--rematerialise", "train"},
    {"--kv-dtype", "prefill decode mixed serve"},
    {"--input-len", "serve"},
    {"--output-len", "serve"},
    {"--concurrency", "serve"},
    {"--certificate", "prefill decode"},
    {"--against", "prefill decode mixed train"},
    {"--compiled", "prefill decode"},
    {"--ladder", "prefill decode"},
    {"--sweep", "prefill decode mixed train"},
    {"--vary", "prefill decode mixed train"},
};

// Flags that do nothing without another one.
struct Companion {
  absl::string_view flag;
  absl::string_view needs;
};
constexpr Companion kCompanions[] = {{"--skip-step", "--recipe"}, {"--kernel", "--recipe"}};

// Flags that do not go together.
struct Rivals {
  absl::string_view flag, other, hint;
};
constexpr absl::string_view kOneStep = "it is of one step: certify the variant that you choose";
constexpr absl::string_view kNoLadder = "variants are rows without a ladder: score the one that you choose";
constexpr absl::string_view kOwnTypes = "a record is of the model's own types";
constexpr Rivals kRivals[] = {
    {"--certificate", "--sweep", kOneStep}, {"--certificate", "--vary", kOneStep},
    {"--ladder", "--sweep", kNoLadder},     {"--ladder", "--vary", kNoLadder},
    {"--dtype", "--compiled", kOwnTypes},   {"--activation-dtype", "--compiled", kOwnTypes},
    {"--kv-dtype", "--compiled", kOwnTypes}};

// Flags of one step of one model, which a table of rows has no place for.
constexpr absl::string_view kNotOfTables[] = {"MODEL",    "--config",  "--recipe",      "--skip-step",
                                              "--kernel", "--against", "--certificate", "--sweep",
                                              "--vary",   "--ladder",  "--compiled"};

bool Has(const std::vector<std::string>& given, absl::string_view flag) {
  return std::find(given.begin(), given.end(), flag) != given.end();
}

}  // namespace

std::vector<std::string> GivenOn(const CLI::App& verb) {
  std::vector<std::string> given;
  for (const CLI::Option* option : verb.get_options()) {
    if (option->count() == 0) continue;
    given.push_back(option->get_lnames().empty() ? option->get_name() : "--" + option->get_lnames()[0]);
  }
  return given;
}

absl::Status CheckPhase(const std::vector<std::string>& given, absl::string_view phase) {
  for (const OfPhases& row : kOfPhases) {
    const std::vector<absl::string_view> phases = absl::StrSplit(row.phases, ' ');
    if (!Has(given, row.flag) || std::find(phases.begin(), phases.end(), phase) != phases.end()) continue;
    return Error(
        1003, row.flag, absl::StrCat("does not go with --phase ", phase),
        absl::StrCat("--phase ", absl::StrJoin(phases, ", "), phases.size() > 1 ? " take it" : " takes it"));
  }
  return absl::OkStatus();
}

absl::Status CheckCompany(const std::vector<std::string>& given) {
  for (const Companion& row : kCompanions) {
    if (Has(given, row.flag) && !Has(given, row.needs))
      return Error(1003, row.flag, absl::StrCat("does nothing without ", row.needs),
                   absl::StrCat("give ", row.needs, " as well"));
  }
  for (const Rivals& row : kRivals) {
    if (Has(given, row.flag) && Has(given, row.other))
      return Error(1003, row.flag, absl::StrCat("does not go with ", row.other), row.hint);
  }
  if (!Has(given, "--batch-file")) return absl::OkStatus();
  for (const absl::string_view flag : kNotOfTables) {
    if (Has(given, flag))
      return Error(1003, flag, "does not go with --batch-file",
                   "rows name their models by --from-config, or by a column of that name, and have no twins");
  }
  return absl::OkStatus();
}

}  // namespace twinforge
