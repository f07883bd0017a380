// twinforge explain TF1234: the page of a diagnostic code.
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cli/verb.h"

namespace twinforge {
namespace {

std::string Page(const CodeInfo& info) {
  return absl::StrCat("TF", info.code, ": ", info.title, "\n  exit status ", static_cast<int>(info.exit),
                      "\n\n", info.page, "\n");
}

absl::StatusOr<Outcome> Explain(const std::string& word) {
  Outcome outcome;
  if (word.empty()) {
    for (const CodeInfo& info : AllCodes()) {
      absl::StrAppend(&outcome.human, "TF", info.code, "  ", info.title, "\n");
      outcome.json["codes"].push_back({{"code", absl::StrCat("TF", info.code)},
                                       {"title", std::string(info.title)},
                                       {"exit", static_cast<int>(info.exit)}});
    }
    return outcome;
  }
  int code = 0;
  const std::string upper = absl::AsciiStrToUpper(word);
  const bool number = absl::SimpleAtoi(absl::StripPrefix(upper, "TF"), &code);
  const CodeInfo* info = number ? FindCode(code) : nullptr;
  if (info == nullptr) {
    return Error(1004, word, "is no diagnostic code",
                 "codes look like TF1201; `twinforge explain` lists them all");
  }
  outcome.human = Page(*info);
  outcome.json = {{"code", absl::StrCat("TF", info->code)},
                  {"title", std::string(info->title)},
                  {"exit", static_cast<int>(info->exit)},
                  {"page", std::string(info->page)}};
  return outcome;
}

}  // namespace

void AddExplain(CLI::App& app, Invocation& invocation) {
  static std::string code;
  CLI::App* verb = AddVerb(app, invocation, "explain", "what a diagnostic code means and what to do",
                           "  twinforge explain TF1201\n  twinforge explain            lists every code\n");
  verb->add_option("CODE", code, "TF1234");
  SetRun(verb, invocation, [] { return Explain(code); });
}

}  // namespace twinforge
