#include "base/diagnostic.h"

#include <algorithm>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"

namespace twinforge {
namespace {

constexpr CodeInfo kCodes[] = {
#define TWIN_CODE(number, exit, title, page) {number, ExitCode::exit, title, page},
#include "base/codes.def"
#undef TWIN_CODE
};

// Payload: code, place, message and hint, separated by a byte that text never holds.
constexpr absl::string_view kPayload = "twinforge.diagnostic";
constexpr char kSeparator = '\x1f';

std::string Headline(const Diagnostic& d) {
  return absl::StrCat("error[TF", d.code, "]: ", d.place, d.place.empty() ? "" : ": ", d.message);
}

absl::StatusCode StatusCodeFor(ExitCode exit) {
  switch (exit) {
    case ExitCode::kDone:
      return absl::StatusCode::kUnknown;
    case ExitCode::kFindings:
      return absl::StatusCode::kFailedPrecondition;
    case ExitCode::kUsage:
      return absl::StatusCode::kInvalidArgument;
    case ExitCode::kUnsupported:
      return absl::StatusCode::kUnimplemented;
    case ExitCode::kCorrupt:
      return absl::StatusCode::kDataLoss;
    case ExitCode::kResources:
      return absl::StatusCode::kResourceExhausted;
    case ExitCode::kTransient:
      return absl::StatusCode::kUnavailable;
    case ExitCode::kInternal:
      return absl::StatusCode::kInternal;
  }
  return absl::StatusCode::kUnknown;
}

}  // namespace

absl::Status Error(int code, absl::string_view place, absl::string_view message, absl::string_view hint) {
  const CodeInfo* info = FindCode(code);
  TWIN_CHECK(info != nullptr, absl::StrCat("code TF", code, " is not in codes.def"));
  Diagnostic d{code, std::string(place), std::string(message), std::string(hint)};
  absl::Status status(StatusCodeFor(info->exit), Headline(d));
  const std::string separator(1, kSeparator);
  status.SetPayload(kPayload,
                    absl::Cord(absl::StrCat(code, separator, place, separator, message, separator, hint)));
  return status;
}

std::optional<Diagnostic> DiagnosticOf(const absl::Status& status) {
  absl::optional<absl::Cord> payload = status.GetPayload(kPayload);
  if (!payload.has_value()) return std::nullopt;
  const std::string text(*payload);
  std::vector<std::string> fields = absl::StrSplit(text, kSeparator);
  if (fields.size() != 4) return std::nullopt;
  Diagnostic d;
  d.code = std::atoi(fields[0].c_str());
  d.place = fields[1];
  d.message = fields[2];
  d.hint = fields[3];
  return d;
}

absl::Status WithPlace(const absl::Status& status, absl::string_view outer) {
  if (status.ok()) return status;
  std::optional<Diagnostic> d = DiagnosticOf(status);
  if (!d.has_value()) return absl::Status(status.code(), absl::StrCat(outer, ": ", status.message()));
  const std::string place = d->place.empty() ? std::string(outer) : absl::StrCat(outer, ": ", d->place);
  return Error(d->code, place, d->message, d->hint);
}

ExitCode ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return ExitCode::kDone;
  std::optional<Diagnostic> d = DiagnosticOf(status);
  if (!d.has_value()) return ExitCode::kInternal;
  const CodeInfo* info = FindCode(d->code);
  return info == nullptr ? ExitCode::kInternal : info->exit;
}

std::string Visible(absl::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  for (const char c : text) {
    const bool control = (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
    if (control) {
      absl::StrAppend(&shown, "\\x", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    } else {
      shown += c;
    }
  }
  return shown;
}

namespace {

// What is endless is cut.
std::string Printable(absl::string_view text) {
  constexpr size_t kMost = 4000;
  std::string shown = Visible(text.substr(0, kMost));
  if (text.size() > kMost) absl::StrAppend(&shown, " ... (", text.size() - kMost, " more bytes)");
  return shown;
}

}  // namespace

std::string Render(const absl::Status& status) {
  std::optional<Diagnostic> d = DiagnosticOf(status);
  if (!d.has_value()) return absl::StrCat("error[TF7000]: ", Printable(status.message()), "\n");
  std::string text = absl::StrCat(Printable(Headline(*d)), "\n");
  if (!d->hint.empty()) absl::StrAppend(&text, "  hint: ", Printable(d->hint), "\n");
  return text;
}

absl::Span<const CodeInfo> AllCodes() { return kCodes; }

const CodeInfo* FindCode(int code) {
  for (const CodeInfo& info : kCodes) {
    if (info.code == code) return &info;
  }
  return nullptr;
}

namespace {

// Levenshtein distance, one row at a time.
int Distance(absl::string_view a, absl::string_view b) {
  std::vector<int> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string Nearest(absl::string_view word, absl::Span<const std::string> known) {
  std::string best;
  int best_distance = static_cast<int>(word.size()) / 3 + 2;  // further than this is no likeness
  for (const std::string& candidate : known) {
    const int distance = Distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace twinforge
