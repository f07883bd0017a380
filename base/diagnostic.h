// What a user reads when something is wrong: a code, a place, a sentence, a hint.
//
//   error[TF1201]: model-00002.safetensors: tensor "h.0.w": data_offsets overlap "h.1.w"
//     hint: the file is damaged; fetch this shard again
//
// Every failure that a user can cause is made by Error(), travels as an ordinary
// absl::Status, and is printed once, by the command line. The code decides the exit
// status (exit codes are listed in docs/cli.md), and `twinforge explain TF1201` prints the page that
// stands beside the code in codes.def. A code that is not in codes.def is our bug
// and aborts.
#ifndef TWINFORGE_BASE_DIAGNOSTIC_H_
#define TWINFORGE_BASE_DIAGNOSTIC_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace twinforge {

// The process's exit statuses, a contract with scripts and job runners.
enum class ExitCode {
  kDone = 0,         // every gate passed
  kFindings = 1,     // proof, lint or a gate says no
  kUsage = 2,        // usage, recipe or configuration error
  kUnsupported = 3,  // model, op or combination that we do not know
  kCorrupt = 4,      // input corrupt, or an integrity mismatch
  kResources = 5,    // disk or memory refused
  kTransient = 6,    // I/O that may succeed when tried again, lock held
  kInternal = 70,    // a bug of ours
};

// One row of codes.def.
struct CodeInfo {
  int code;  // 1201, printed as TF1201
  ExitCode exit;
  absl::string_view title;  // at most ten words
  absl::string_view page;   // what it means, what to do; plain text, a few lines
};

struct Diagnostic {
  int code = 0;
  std::string place;    // file, tensor, shard, recipe line:column, role; may be empty
  std::string message;  // one sentence, no final stop
  std::string hint;     // one sentence, or empty
};

// A failed status that carries a diagnostic. `code` must stand in codes.def.
absl::Status Error(int code, absl::string_view place, absl::string_view message, absl::string_view hint = "");

// The diagnostic that `status` carries, if Error() made it.
std::optional<Diagnostic> DiagnosticOf(const absl::Status& status);

// The same failure with `outer` put in front of its place ("recipe step 3: ").
absl::Status WithPlace(const absl::Status& status, absl::string_view outer);

// The exit status for a failure: the code's, or kInternal where none is carried.
ExitCode ExitCodeOf(const absl::Status& status);

// `text` with what a terminal would obey shown as \x1b: names come from files that nobody vouches for. Lines
// and tabs stay.
std::string Visible(absl::string_view text);

// Several lines, as the command line prints them, without colour; ends in a newline.
std::string Render(const absl::Status& status);

// All rows of codes.def, in ascending order of code.
absl::Span<const CodeInfo> AllCodes();
const CodeInfo* FindCode(int code);

// The known word nearest to `word`, or "" where none is near: for "did you mean".
std::string Nearest(absl::string_view word, absl::Span<const std::string> known);

}  // namespace twinforge

#endif  // TWINFORGE_BASE_DIAGNOSTIC_H_
