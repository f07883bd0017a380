// The table of contents: which verbs there are, how their results are printed.
#include <fcntl.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/version.h"
#include "cli/verb.h"
#ifdef TWINFORGE_MIMALLOC
#include <mimalloc.h>
#endif

namespace twinforge {
namespace {

constexpr char kAbout[] =
    "Adapts models to TPUs from source to source.\n"
    "Results go to stdout, everything else to stderr. No network, no telemetry.";

// A standard stream that was closed would give its number to the next file that is opened, and what is said
// would be written into that. Here nothing can be written to it.
void HoldStandardStreams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    if (open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) < 0) return;
  }
}

// Results, which are complete before any of them is said. `done`: what the verb has left on disk, or "".
// `exit`, or the status of a stdout that took not all of it; then stderr says so.
int Say(absl::string_view text, absl::string_view done, int exit) {
  errno = 0;
  const bool said =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (said) return exit;
  const std::string why = errno == 0 ? "" : absl::StrCat(": ", std::strerror(errno));
  const absl::Status status = Error(
      1005, "stdout", absl::StrCat("what there is to say cannot be written there", why),
      done.empty() ? "give it room, or another place" : absl::StrCat(done, "; only this report is lost"));
  std::fputs(Render(status).c_str(), stderr);
  return exit == 0 || exit == static_cast<int>(ExitCode::kFindings) ? static_cast<int>(ExitCodeOf(status))
                                                                    : exit;
}

std::string JsonText(const Invocation& invocation, Json body) {
  Json json = Json::object();
  json["schema"] = "twinforge." + invocation.verb + ".v1";
  json["tool_version"] = kVersion;
  for (auto& [key, value] : body.items()) json[key] = std::move(value);
  // Names of files may be any bytes.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// One JSON object a line, in either format: for programs that read line by line.
std::string LinesText(const std::vector<Json>& lines) {
  std::string text;
  for (const Json& line : lines) text += line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  return text;
}

// A failure is a diagnostic on stderr, and in JSON an object on stdout as well, so that a
// reader of stdout always gets a document.
int Report(const Invocation& invocation, const absl::Status& status) {
  std::fputs(Render(status).c_str(), stderr);
  const int exit = static_cast<int>(ExitCodeOf(status));
  if (invocation.format == "json") {
    const std::optional<Diagnostic> d = DiagnosticOf(status);
    Json error = Json::object();
    error["code"] = d ? absl::StrCat("TF", d->code) : "TF7000";
    error["place"] = d ? d->place : "";
    error["message"] = d ? d->message : std::string(status.message());
    error["hint"] = d ? d->hint : "";
    error["exit"] = exit;
    return Say(JsonText(invocation, Json{{"error", error}}), "", exit);
  }
  return exit;
}

// CLI11's own complaint, with the nearest verb or flag.
absl::Status Complaint(const CLI::App& app, const CLI::ParseError& error,
                       const std::vector<std::string>& words) {
  std::vector<std::string> known;
  const CLI::App* at = &app;
  for (const CLI::App* verb : app.get_subcommands({})) known.push_back(verb->get_name());
  for (const CLI::App* verb : app.get_subcommands({})) {
    if (!words.empty() && words[0] == verb->get_name()) at = verb;
  }
  std::string unknown;
  if (at == &app && !words.empty()) {
    unknown = words[0];
  } else {
    known.clear();
    for (const CLI::Option* option : at->get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    }
    for (const CLI::App* verb : at->get_subcommands({})) known.push_back(verb->get_name());
    for (const std::string& word : words) {
      if (absl::StartsWith(word, "--") &&
          std::find(known.begin(), known.end(), word.substr(0, word.find('='))) == known.end()) {
        unknown = word;
        break;
      }
    }
  }
  const std::string nearest = unknown.empty() ? "" : Nearest(unknown, known);
  // A flag that is mistyped is the news, whatever else is missing for it.
  std::string message = unknown.empty() || at == &app
                            ? error.what()
                            : absl::StrCat("The following argument was not expected: ", unknown);
  for (char& c : message) c = c == '\n' ? ' ' : c;
  return Error(1001, at == &app ? "twinforge" : "twinforge " + at->get_name(), message,
               nearest.empty() ? absl::StrCat("`twinforge ", at == &app ? "" : at->get_name() + " ",
                                              "--help` shows what there is")
                               : absl::StrCat("did you mean `", nearest, "`?"));
}

int Main(int argc, char** argv) {
  HoldStandardStreams();
  std::signal(SIGPIPE, SIG_IGN);
#ifdef TWINFORGE_MIMALLOC
  mi_option_enable(mi_option_large_os_pages);  // a tenth of a large plan is page faults
#endif
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 1 && words[0] == "--version") {
    return Say(absl::StrCat("twinforge ", kVersion, "\n"), "", 0);
  }
  CLI::App app(kAbout, "twinforge");
  app.set_version_flag("--version", absl::StrCat("twinforge ", kVersion));
  app.require_subcommand(0, 1);
  Invocation invocation;
  AddInspect(app, invocation);
  AddPlan(app, invocation);
  AddForge(app, invocation);
  AddScore(app, invocation);
  AddCheck(app, invocation);
  AddCompile(app, invocation);
  AddAdvise(app, invocation);
  AddProve(app, invocation);
  AddUnforge(app, invocation);
  AddEval(app, invocation);
  AddExport(app, invocation);
  AddRecipe(app, invocation);
  AddChip(app, invocation);
  AddExplain(app, invocation);
  AddDoctor(app, invocation);
  ReadDecimals(app);
  RefuseEmptyValues(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::ostringstream help;
    if (error.get_exit_code() == 0) {  // --help, --version
      app.exit(error, help);
      return Say(help.str(), "", 0);
    }
    if (!words.empty()) invocation.verb = words[0];
    return Report(invocation, Complaint(app, error, words));
  }
  if (!invocation.run) return Say(app.help(), "", 0);
  absl::StatusOr<Outcome> outcome = invocation.run();
  if (!outcome.ok()) return Report(invocation, outcome.status());
  const std::string text = !outcome->lines.empty()       ? LinesText(outcome->lines)
                           : invocation.format == "json" ? JsonText(invocation, std::move(outcome->json))
                                                         : Visible(outcome->human);
  return Say(text, outcome->done, static_cast<int>(outcome->exit));
}

}  // namespace
}  // namespace twinforge

int main(int argc, char** argv) {
  const int status = twinforge::Main(argc, argv);
  std::fflush(nullptr);
  std::_Exit(
      status);  // nothing that static destructors would do is wanted, and pools of programs take long to free
}
