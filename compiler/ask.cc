#include "compiler/ask.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "compiler/apart.h"
#include "compiler/pjrt_plugin.h"

namespace twinforge {
namespace {

// The last lines that it said, for a crash: the reason stands there.
std::string LastWords(absl::string_view said) {
  constexpr size_t kMost = 1200;
  said = absl::StripAsciiWhitespace(said);
  if (said.size() > kMost) said.remove_prefix(said.size() - kMost);
  return std::string(said);
}

// The child writes a letter as each stage begins, then a line's end and the answer.
char Letter(CompilerAnswer::Stage stage) { return static_cast<char>('0' + static_cast<int>(stage)); }

std::string AskInChild(const PluginQuestion& asked, const ApartWriter& write) {
  const CompilerAnswer answer =
      AskPlugin(asked, [&](CompilerAnswer::Stage stage) { write(std::string(1, Letter(stage))); });
  return absl::StrCat("\n", answer.SerializeAsString());
}

// The stage that had begun last.
CompilerAnswer::Stage LastStage(absl::string_view written) {
  const absl::string_view letters = written.substr(0, written.find('\n'));
  for (const CompilerAnswer::Stage stage : {CompilerAnswer::COMPILE, CompilerAnswer::TOPOLOGY})
    if (!letters.empty() && letters.back() == Letter(stage)) return stage;
  return CompilerAnswer::LOAD;
}

absl::StatusOr<CompilerAnswer> Read(const ApartEnd& end, const CompilerQuestion& question) {
  CompilerAnswer answer;
  const size_t line = end.written.find('\n');
  if (end.finished && line != std::string::npos && answer.ParseFromString(end.written.substr(line + 1)))
    return answer;
  if (end.timed_out) {
    return Error(2104, question.library.path, HowItEnded(end, question.seconds),
                 "give it longer with --timeout SECONDS, or a smaller program");
  }
  answer.Clear();
  answer.set_stage(LastStage(end.written));
  answer.set_error(
      absl::StrCat("the compiler ", HowItEnded(end, question.seconds), ": ", LastWords(end.said)));
  return answer;
}

absl::Status CheckAnswer(const CompilerAnswer& answer, const CompilerQuestion& question) {
  const std::string place = absl::StrCat("topology ", JsonQuoted(question.topology.name, 100));
  switch (answer.stage()) {
    case CompilerAnswer::DONE:
    case CompilerAnswer::COMPILE:
      return absl::OkStatus();
    case CompilerAnswer::TOPOLOGY:
      return Error(2103, place, absl::StrCat("the compiler does not take it: ", answer.error()));
    default:
      return Error(2102, question.library.path, answer.error().empty() ? "it says nothing" : answer.error(),
                   "name the TPU compiler's libtpu.so with --compiler PATH");
  }
}

}  // namespace

absl::StatusOr<CompilerAnswer> AskCompiler(const CompilerQuestion& question) {
  TWIN_ASSIGN_OR_RETURN(const int64_t partitions, PartitionsOf(question.program));
  const int64_t most = DevicesOf(question.topology);
  if (partitions > most) {
    return Error(2103, absl::StrCat("topology ", JsonQuoted(question.topology.name, 100)),
                 absl::StrCat("has ", most, " devices, and the program is split into ", partitions));
  }
  const PluginQuestion asked = {
      .library = question.library.path,
      .topology = question.topology,
      .program = question.program,
      .compile_options = SerializedCompileOptions(question.program, partitions, question.flags)};
  TWIN_ASSIGN_OR_RETURN(
      const ApartEnd end,
      RunApart([&](const ApartWriter& write) { write(AskInChild(asked, write)); }, question.seconds));
  TWIN_ASSIGN_OR_RETURN(CompilerAnswer answer, Read(end, question));
  TWIN_RETURN_IF_ERROR(CheckAnswer(answer, question));
  return answer;
}

}  // namespace twinforge
