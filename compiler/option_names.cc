#include "compiler/option_names.h"

#include <fstream>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"

namespace twinforge {
namespace {

constexpr absl::string_view kPrefix = "xla_";
constexpr size_t kLongestName = 120;

bool IsNameByte(char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_'; }

}  // namespace

std::vector<std::string> OptionNames(const std::string& path) {
  std::set<std::string> names;
  std::ifstream file(path, std::ios::binary);
  std::vector<char> piece(size_t{1} << 20);
  std::string word;    // name bytes since the last other one
  bool whole = false;  // they follow a zero byte
  while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())), file.gcount() > 0) {
    for (std::streamsize i = 0; i < file.gcount(); ++i) {
      const char c = piece[i];
      if (IsNameByte(c)) {
        if (word.size() <= kLongestName) word.push_back(c);
        continue;
      }
      if (c == '\0' && whole && word.size() <= kLongestName && absl::StartsWith(word, kPrefix))
        names.insert(word);
      word.clear();
      whole = c == '\0';
    }
  }
  return {names.begin(), names.end()};
}

absl::Status CheckOptions(absl::string_view answer, const CompilerFlags& flags, const std::string& path) {
  for (const auto& [name, value] : flags) {
    if (absl::StrContains(answer, absl::StrCat("No such compile option: '", name, "'"))) {
      const std::string nearest = Nearest(name, OptionNames(path));
      return Error(2107, absl::StrCat("--option ", name), "the compiler knows no flag of this name",
                   nearest.empty() ? "leave it out, or look its name up in the compiler's own sources"
                                   : absl::StrCat("did you mean ", nearest, "?"));
    }
    if (absl::StrContains(answer, absl::StrCat("into flag ", name, ":"))) {
      const absl::string_view why = answer.substr(answer.rfind(absl::StrCat("flag ", name, ": ")));
      return Error(2107, absl::StrCat("--option ", name),
                   absl::StrCat(JsonQuoted(value, 100), " is no value of this flag"),
                   absl::StrCat("the compiler says: ", JsonQuoted(std::string(why.substr(0, 300)), 300)));
    }
  }
  return absl::OkStatus();
}

}  // namespace twinforge
