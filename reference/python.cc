#include "reference/python.h"

#include <charconv>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace twinforge {
namespace {

// Names are UTF-8 in a file, and so is Python's source: bytes beyond ASCII stay as they are.
std::string Escaped(absl::string_view text, bool double_braces) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppendFormat(&out, "\\x%02x", byte);
    } else if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (double_braces && (c == '{' || c == '}')) {
      out += {c, c};
    } else {
      out.push_back(c);
    }
  }
  return out;
}

}  // namespace

std::string PyFloat(double value) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  std::string text(buffer, error == std::errc() ? end : buffer);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

std::string PyString(absl::string_view text) { return absl::StrCat("\"", Escaped(text, false), "\""); }

std::string PyInFString(absl::string_view text) { return Escaped(text, true); }

std::string PyTuple(absl::Span<const int64_t> values) {
  return absl::StrCat("(", absl::StrJoin(values, ", "), values.size() == 1 ? ",)" : ")");
}

std::string InOrder(std::initializer_list<absl::string_view> parts) { return absl::StrJoin(parts, ""); }

std::string Indented(absl::string_view text, int columns) {
  std::string out;
  const std::string space(columns, ' ');
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i + 1 == lines.size() && lines[i].empty()) break;
    absl::StrAppend(&out, lines[i].empty() ? "" : space, lines[i], "\n");
  }
  return out;
}

}  // namespace twinforge
