#include "base/json_reader.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "simdjson.h"

namespace twinforge {
namespace {

constexpr int kMalformed = 1206;
constexpr size_t kFewKeys = 8;

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Whether a value that begins with `c` is of this kind, in both dialects.
bool Begins(char c, JsonKind kind) {
  switch (kind) {
    case JsonKind::kNull:
      return c == 'n';
    case JsonKind::kBool:
      return c == 't' || c == 'f';
    case JsonKind::kNumber:
      return c == '-' || IsDigit(c);
    case JsonKind::kString:
      return c == '"';
    case JsonKind::kArray:
      return c == '[';
    case JsonKind::kObject:
      return c == '{';
  }
  return false;
}

// Where the first byte stands that is not UTF-8. Only called once simdjson has said no, so
// it looks for the longest valid prefix by halving.
size_t ValidPrefix(absl::string_view text) {
  size_t good = 0;
  size_t end = text.size();
  while (end - good > 1) {
    size_t middle = good + (end - good) / 2;
    while (middle > good && (text[middle] & 0xC0) == 0x80) --middle;  // not inside a character
    if (middle == good) break;
    if (simdjson::validate_utf8(text.data() + good, middle - good)) {
      good = middle;
    } else {
      end = middle;
    }
  }
  return good;
}

void AppendUtf8(uint32_t c, std::string* out) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out->push_back(static_cast<char>(0xC0 | (c >> 6)));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else if (c < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | (c >> 12)));
    out->push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else {
    out->push_back(static_cast<char>(0xF0 | (c >> 18)));
    out->push_back(static_cast<char>(0x80 | ((c >> 12) & 0x3F)));
    out->push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  }
}

// The character at `*i` of valid UTF-8; invalid bytes (a file name's) count as one each.
uint32_t NextCharacter(absl::string_view text, size_t* i) {
  const uint8_t lead = static_cast<uint8_t>(text[*i]);
  const int length = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
  if (length == 1 || *i + length > text.size()) {
    ++*i;
    return lead;
  }
  uint32_t c = lead & (0xFF >> (length + 1));
  for (int k = 1; k < length; ++k) c = (c << 6) | (static_cast<uint8_t>(text[*i + k]) & 0x3F);
  *i += length;
  return c;
}

}  // namespace

absl::string_view Name(JsonKind kind) {
  switch (kind) {
    case JsonKind::kNull:
      return "null";
    case JsonKind::kBool:
      return "a boolean";
    case JsonKind::kNumber:
      return "a number";
    case JsonKind::kString:
      return "a string";
    case JsonKind::kArray:
      return "an array";
    case JsonKind::kObject:
      return "an object";
  }
  return "";
}

std::string JsonQuoted(absl::string_view text, int64_t limit) {
  std::string out = "\"";
  const size_t end = std::min<uint64_t>(text.size(), static_cast<uint64_t>(limit));
  for (size_t i = 0; i < end;) {
    const uint32_t c = NextCharacter(text, &i);
    switch (c) {
      case '"':
        out += "\\\"";
        continue;
      case '\\':
        out += "\\\\";
        continue;
      case '\n':
        out += "\\n";
        continue;
      case '\r':
        out += "\\r";
        continue;
      case '\t':
        out += "\\t";
        continue;
      case '\b':
        out += "\\b";
        continue;
      case '\f':
        out += "\\f";
        continue;
    }
    if (c >= 0x20 && c < 0x80) {
      out.push_back(static_cast<char>(c));
    } else if (c < 0x10000) {
      absl::StrAppendFormat(&out, "\\u%04x", c);
    } else {
      absl::StrAppendFormat(&out, "\\u%04x\\u%04x", 0xD7C0 + (c >> 10), 0xDC00 + (c & 0x3FF));
    }
  }
  out.push_back('"');
  if (end < text.size()) absl::StrAppend(&out, "... (", text.size(), " bytes)");
  return out;
}

bool KeySet::Insert(absl::string_view key) {
  if (few_.size() < kFewKeys) {
    if (std::find(few_.begin(), few_.end(), key) != few_.end()) return false;
    few_.push_back(key);
    if (few_.size() == kFewKeys) many_.insert(few_.begin(), few_.end());
    return true;
  }
  return many_.insert(key).second;
}

JsonReader::JsonReader(absl::string_view text, absl::string_view place, JsonDialect dialect, int max_depth)
    : text_(text), place_(place), dialect_(dialect), max_depth_(max_depth) {}

absl::Status JsonReader::FailAt(size_t position, absl::string_view message) const {
  if (dialect_ == JsonDialect::kHeader) {
    return Error(kMalformed, absl::StrCat(place_, ": header byte ", position), message);
  }
  const absl::string_view before = text_.substr(0, position);
  const int64_t line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t newline = before.rfind('\n');
  const size_t column = newline == absl::string_view::npos ? position + 1 : position - newline;
  return Error(kMalformed, absl::StrCat(place_, ":", line, ":", column), message);
}

absl::Status JsonReader::Fail(absl::string_view message) const { return FailAt(position_, message); }

absl::Status JsonReader::FailDuplicate(absl::string_view key) const {
  return FailAt(key_position_,
                absl::StrCat("the key ", JsonQuoted(key, 100), " appears twice in one object"));
}

absl::Status JsonReader::Start() {
  if (absl::StartsWith(text_, "\xEF\xBB\xBF")) return FailAt(0, "begins with a byte-order mark");
  if (!simdjson::validate_utf8(text_.data(), text_.size())) {
    return FailAt(ValidPrefix(text_), "is not valid UTF-8");
  }
  return absl::OkStatus();
}

absl::Status JsonReader::Finish() {
  if (dialect_ == JsonDialect::kHeader) {
    while (position_ < text_.size() && text_[position_] == ' ') ++position_;
  } else {
    SkipSpace();
  }
  if (position_ == text_.size()) return absl::OkStatus();
  return Fail(dialect_ == JsonDialect::kHeader ? "something other than spaces follows the object"
                                               : "something follows the value");
}

void JsonReader::SkipSpace() {
  while (position_ < text_.size() && IsSpace(text_[position_])) ++position_;
}

absl::StatusOr<JsonKind> JsonReader::Peek() {
  SkipSpace();
  if (position_ == text_.size()) return Fail("the text ends where a value should stand");
  const char c = text_[position_];
  for (const JsonKind kind : {JsonKind::kString, JsonKind::kNumber, JsonKind::kObject, JsonKind::kArray,
                              JsonKind::kBool, JsonKind::kNull}) {
    if (Begins(c, kind)) return kind;
  }
  if (dialect_ == JsonDialect::kDocument && (c == 'N' || c == 'I')) return JsonKind::kNumber;
  return Fail("a value should stand here");
}

bool JsonReader::NextIs(JsonKind kind) {
  SkipSpace();
  if (position_ == text_.size()) return false;
  if (Begins(text_[position_], kind)) return true;
  const absl::StatusOr<JsonKind> found = Peek();
  return found.ok() && *found == kind;
}

absl::Status JsonReader::Expect(JsonKind kind) {
  if (NextIs(kind)) return absl::OkStatus();
  TWIN_ASSIGN_OR_RETURN(const JsonKind found, Peek());
  return Fail(absl::StrCat("found ", Name(found), " where ", Name(kind), " should stand"));
}

absl::Status JsonReader::Word(absl::string_view word) {
  if (!absl::StartsWith(text_.substr(position_), word)) return Fail("a value should stand here");
  position_ += word.size();
  return absl::OkStatus();
}

absl::Status JsonReader::Null() {
  TWIN_RETURN_IF_ERROR(Expect(JsonKind::kNull));
  return Word("null");
}

absl::Status JsonReader::Bool(bool* value) {
  TWIN_RETURN_IF_ERROR(Expect(JsonKind::kBool));
  *value = text_[position_] == 't';
  return Word(*value ? "true" : "false");
}

absl::Status JsonReader::Digits() {
  if (position_ == text_.size() || !IsDigit(text_[position_])) return Fail("a digit should stand here");
  while (position_ < text_.size() && IsDigit(text_[position_])) ++position_;
  return absl::OkStatus();
}

absl::Status JsonReader::Number(absl::string_view* spelling) {
  TWIN_RETURN_IF_ERROR(Expect(JsonKind::kNumber));
  const size_t start = position_;
  const auto at = [this](char c) { return position_ < text_.size() && text_[position_] == c; };
  if (at('-')) ++position_;
  if (dialect_ == JsonDialect::kDocument && (at('N') || at('I'))) {
    if (at('N') && position_ > start) return Fail("a digit should stand here");
    TWIN_RETURN_IF_ERROR(Word(at('N') ? "NaN" : "Infinity"));
  } else {
    if (at('0')) {
      ++position_;
      if (position_ < text_.size() && IsDigit(text_[position_])) return Fail("a number begins with 0");
    } else {
      TWIN_RETURN_IF_ERROR(Digits());
    }
    if (at('.')) {
      ++position_;
      TWIN_RETURN_IF_ERROR(Digits());
    }
    if (at('e') || at('E')) {
      ++position_;
      if (at('+') || at('-')) ++position_;
      TWIN_RETURN_IF_ERROR(Digits());
    }
  }
  *spelling = text_.substr(start, position_ - start);
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> JsonReader::FourHexDigits() {
  uint32_t value = 0;
  for (int k = 0; k < 4; ++k, ++position_) {
    const char c = position_ < text_.size() ? text_[position_] : '\0';
    const char lower = static_cast<char>(c | 0x20);
    if (IsDigit(c)) {
      value = value * 16 + (c - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      value = value * 16 + (lower - 'a' + 10);
    } else {
      return Fail("\\u needs four hexadecimal digits");
    }
  }
  return value;
}

absl::Status JsonReader::Escape() {
  ++position_;  // the backslash
  const size_t start = position_ - 1;
  const char c = position_ < text_.size() ? text_[position_] : '\0';
  const size_t simple = absl::string_view("\"\\/bfnrt").find(c);
  if (simple != absl::string_view::npos) {
    unescaped_.push_back("\"\\/\b\f\n\r\t"[simple]);
    ++position_;
    return absl::OkStatus();
  }
  if (c != 'u') return FailAt(start, "no such escape");
  ++position_;
  TWIN_ASSIGN_OR_RETURN(uint32_t code, FourHexDigits());
  if (code >= 0xD800 && code < 0xE000) {
    if (code >= 0xDC00 || !absl::StartsWith(text_.substr(position_), "\\u")) {
      return FailAt(start, "half of a surrogate pair");
    }
    position_ += 2;
    TWIN_ASSIGN_OR_RETURN(const uint32_t low, FourHexDigits());
    if (low < 0xDC00 || low >= 0xE000) return FailAt(start, "half of a surrogate pair");
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }
  AppendUtf8(code, &unescaped_);
  return absl::OkStatus();
}

absl::Status JsonReader::String(absl::string_view* value) {
  TWIN_RETURN_IF_ERROR(Expect(JsonKind::kString));
  const size_t opening = position_++;
  size_t plain = position_;  // what follows is not yet copied
  size_t copied = std::string::npos;
  for (;; ++position_) {
    if (position_ == text_.size()) return FailAt(opening, "a string that does not end");
    const char c = text_[position_];
    if (c == '"') break;
    if (static_cast<uint8_t>(c) < 0x20) return Fail("a control character inside a string");
    if (c != '\\') continue;
    // An unescaped string is never longer than its spelling, so one reservation is enough.
    if (unescaped_.capacity() < text_.size()) unescaped_.reserve(text_.size());
    if (copied == std::string::npos) copied = unescaped_.size();
    unescaped_.append(text_.data() + plain, position_ - plain);
    TWIN_RETURN_IF_ERROR(Escape());
    plain = position_--;
  }
  if (copied == std::string::npos) {
    *value = text_.substr(plain, position_ - plain);
  } else {
    unescaped_.append(text_.data() + plain, position_ - plain);
    *value = absl::string_view(unescaped_).substr(copied);
  }
  ++position_;
  return absl::OkStatus();
}

absl::Status JsonReader::Enter(JsonKind kind) {
  TWIN_RETURN_IF_ERROR(Expect(kind));
  if (depth_ == max_depth_) return Fail(absl::StrCat("nested deeper than ", max_depth_, " levels"));
  ++depth_;
  ++position_;
  first_ = true;
  return absl::OkStatus();
}

absl::Status JsonReader::EnterObject() { return Enter(JsonKind::kObject); }
absl::Status JsonReader::EnterArray() { return Enter(JsonKind::kArray); }

// Consumes what stands between two members: a comma, or the closing bracket.
absl::Status JsonReader::Separator(char close, bool* more) {
  SkipSpace();
  const char c = position_ < text_.size() ? text_[position_] : '\0';
  *more = c != close;
  if (!*more) {
    ++position_;
    --depth_;
    first_ = false;
    return absl::OkStatus();
  }
  if (!first_) {
    if (c != ',')
      return Fail(absl::StrCat("a comma or ", absl::string_view(&close, 1), " should stand here"));
    ++position_;
  }
  first_ = false;
  return absl::OkStatus();
}

absl::StatusOr<bool> JsonReader::NextMember(absl::string_view* key) {
  bool more = false;
  TWIN_RETURN_IF_ERROR(Separator('}', &more));
  if (!more) return false;
  SkipSpace();
  if (position_ == text_.size() || text_[position_] != '"') return Fail("a key in quotes should stand here");
  key_position_ = position_;
  TWIN_RETURN_IF_ERROR(String(key));
  SkipSpace();
  if (position_ == text_.size() || text_[position_] != ':') return Fail("a colon should stand here");
  ++position_;
  return true;
}

absl::StatusOr<bool> JsonReader::NextItem() {
  bool more = false;
  TWIN_RETURN_IF_ERROR(Separator(']', &more));
  return more;
}

absl::Status JsonReader::Skip() {
  TWIN_ASSIGN_OR_RETURN(const JsonKind kind, Peek());
  absl::string_view text;
  bool flag = false;
  switch (kind) {
    case JsonKind::kNull:
      return Null();
    case JsonKind::kBool:
      return Bool(&flag);
    case JsonKind::kNumber:
      return Number(&text);
    case JsonKind::kString:
      return String(&text);
    case JsonKind::kArray:
    case JsonKind::kObject:
      return SkipContainer(kind);
  }
  return absl::OkStatus();
}

absl::Status JsonReader::SkipContainer(JsonKind kind) {
  TWIN_RETURN_IF_ERROR(Enter(kind));
  KeySet keys;
  for (;;) {
    absl::string_view key;
    TWIN_ASSIGN_OR_RETURN(const bool more, kind == JsonKind::kObject ? NextMember(&key) : NextItem());
    if (!more) return absl::OkStatus();
    if (kind == JsonKind::kObject && !keys.Insert(key)) return FailDuplicate(key);
    TWIN_RETURN_IF_ERROR(Skip());
  }
}

}  // namespace twinforge
