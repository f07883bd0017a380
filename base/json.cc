#include "base/json.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/json_reader.h"
#include "base/status_macros.h"

namespace twinforge {
namespace {

// The shortest digits that read back as `value`, in the spelling of Python's repr: an
// exponent below 1e-4 and from 1e16 on, and never a bare integer.
std::string RealSpelling(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  char buffer[512];
  const double magnitude = std::fabs(value);
  const bool plain = magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e16);
  const std::chars_format format = plain ? std::chars_format::fixed : std::chars_format::scientific;
  const std::to_chars_result end = std::to_chars(buffer, buffer + sizeof(buffer), value, format);
  std::string text(buffer, end.ptr);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

void NewLine(int spaces, std::string* out) {
  out->push_back('\n');
  out->append(spaces, ' ');
}

void Append(const JsonValue& value, int indent, int level, std::string* out);

// What stands between brackets, on one line each, or on one line in all for indent 0.
template <typename Range, typename Member>
void AppendAll(const Range& range, int indent, int level, const Member& member, std::string* out) {
  bool first = true;
  for (const auto& item : range) {
    if (!first) *out += indent > 0 ? "," : ", ";
    first = false;
    if (indent > 0) NewLine(indent * (level + 1), out);
    member(item);
  }
  if (!first && indent > 0) NewLine(indent * level, out);
}

void Append(const JsonValue& value, int indent, int level, std::string* out) {
  switch (value.kind()) {
    case JsonValue::Kind::kNull:
      *out += "null";
      return;
    case JsonValue::Kind::kBool:
      *out += value.as_bool() ? "true" : "false";
      return;
    case JsonValue::Kind::kInteger:
    case JsonValue::Kind::kReal:
      *out += value.as_string();
      return;
    case JsonValue::Kind::kString:
      *out += JsonQuoted(value.as_string());
      return;
    case JsonValue::Kind::kArray:
      out->push_back('[');
      AppendAll(
          value.items(), indent, level, [&](const JsonValue& item) { Append(item, indent, level + 1, out); },
          out);
      out->push_back(']');
      return;
    case JsonValue::Kind::kObject:
      out->push_back('{');
      AppendAll(
          value.members(), indent, level,
          [&](const std::pair<std::string, JsonValue>& member) {
            absl::StrAppend(out, JsonQuoted(member.first), ": ");
            Append(member.second, indent, level + 1, out);
          },
          out);
      out->push_back('}');
      return;
  }
}

}  // namespace

// Builds the tree; what is strict is JsonReader.
class JsonParser {
 public:
  JsonParser(absl::string_view text, absl::string_view place, int max_depth)
      : reader_(text, place, JsonDialect::kDocument, max_depth) {}

  absl::StatusOr<JsonValue> Parse() {
    TWIN_RETURN_IF_ERROR(reader_.Start());
    JsonValue value;
    TWIN_RETURN_IF_ERROR(Any(&value));
    TWIN_RETURN_IF_ERROR(reader_.Finish());
    return value;
  }

 private:
  absl::Status Any(JsonValue* out) {
    TWIN_ASSIGN_OR_RETURN(const JsonKind kind, reader_.Peek());
    switch (kind) {
      case JsonKind::kNull:
        return reader_.Null();
      case JsonKind::kBool:
        out->kind_ = JsonValue::Kind::kBool;
        return reader_.Bool(&out->bool_);
      case JsonKind::kNumber:
        return Number(out);
      case JsonKind::kString: {
        absl::string_view text;
        TWIN_RETURN_IF_ERROR(reader_.String(&text));
        out->kind_ = JsonValue::Kind::kString;
        out->string_ = std::string(text);
        return absl::OkStatus();
      }
      case JsonKind::kArray:
        return Array(out);
      case JsonKind::kObject:
        return Object(out);
    }
    return absl::OkStatus();
  }

  absl::Status Number(JsonValue* out) {
    absl::string_view spelling;
    TWIN_RETURN_IF_ERROR(reader_.Number(&spelling));
    out->string_ = std::string(spelling);
    const bool integral = spelling.find_first_not_of("-0123456789") == absl::string_view::npos;
    out->kind_ = integral ? JsonValue::Kind::kInteger : JsonValue::Kind::kReal;
    // Beyond int64 SimpleAtoi leaves the nearest end of the range, which is what we promise.
    if (integral) (void)absl::SimpleAtoi(spelling, &out->integer_);
    TWIN_CHECK(absl::SimpleAtod(spelling, &out->number_), "a number that the reader let pass");
    return absl::OkStatus();
  }

  absl::Status Array(JsonValue* out) {
    out->kind_ = JsonValue::Kind::kArray;
    TWIN_RETURN_IF_ERROR(reader_.EnterArray());
    for (;;) {
      TWIN_ASSIGN_OR_RETURN(const bool more, reader_.NextItem());
      if (!more) return absl::OkStatus();
      out->items_.emplace_back();
      TWIN_RETURN_IF_ERROR(Any(&out->items_.back()));
    }
  }

  absl::Status Object(JsonValue* out) {
    out->kind_ = JsonValue::Kind::kObject;
    TWIN_RETURN_IF_ERROR(reader_.EnterObject());
    KeySet keys;
    for (;;) {
      absl::string_view key;
      TWIN_ASSIGN_OR_RETURN(const bool more, reader_.NextMember(&key));
      if (!more) return absl::OkStatus();
      if (!keys.Insert(key)) return reader_.FailDuplicate(key);
      out->members_.emplace_back(std::string(key), JsonValue());
      TWIN_RETURN_IF_ERROR(Any(&out->members_.back().second));
    }
  }

  JsonReader reader_;
};

const JsonValue* JsonValue::Find(absl::string_view key) const {
  for (const auto& [name, value] : members_) {
    if (name == key) return &value;
  }
  return nullptr;
}

const JsonValue* JsonValue::FindPath(absl::string_view dotted) const {
  const JsonValue* at = this;
  for (absl::string_view key : absl::StrSplit(dotted, '.')) {
    at = at->Find(key);
    if (at == nullptr) return nullptr;
  }
  return at;
}

void JsonValue::Set(absl::string_view dotted, JsonValue value) {
  JsonValue* at = this;
  for (absl::string_view key : absl::StrSplit(dotted, '.')) {
    if (at->kind_ != Kind::kObject) *at = Object();  // a path goes through: what stood there gives way
    JsonValue* child = const_cast<JsonValue*>(at->Find(key));
    if (child == nullptr) {
      at->members_.emplace_back(std::string(key), JsonValue());
      child = &at->members_.back().second;
    }
    at = child;
  }
  *at = std::move(value);
}

void JsonValue::Remove(absl::string_view dotted) {
  const size_t dot = dotted.rfind('.');
  const JsonValue* holder = dot == absl::string_view::npos ? this : FindPath(dotted.substr(0, dot));
  if (holder == nullptr) return;
  const absl::string_view key = dot == absl::string_view::npos ? dotted : dotted.substr(dot + 1);
  auto& members = const_cast<JsonValue*>(holder)->members_;
  for (auto it = members.begin(); it != members.end(); ++it) {
    if (it->first != key) continue;
    members.erase(it);
    return;
  }
}

JsonValue JsonValue::Null() { return JsonValue(); }

JsonValue JsonValue::Bool(bool value) {
  JsonValue v;
  v.kind_ = Kind::kBool;
  v.bool_ = value;
  return v;
}

JsonValue JsonValue::Integer(int64_t value) {
  JsonValue v;
  v.kind_ = Kind::kInteger;
  v.integer_ = value;
  v.number_ = static_cast<double>(value);
  v.string_ = absl::StrCat(value);
  return v;
}

JsonValue JsonValue::Real(double value) {
  JsonValue v;
  v.kind_ = Kind::kReal;
  v.number_ = value;
  v.string_ = RealSpelling(value);
  return v;
}

JsonValue JsonValue::String(std::string value) {
  JsonValue v;
  v.kind_ = Kind::kString;
  v.string_ = std::move(value);
  return v;
}

JsonValue JsonValue::Array(std::vector<JsonValue> items) {
  JsonValue v;
  v.kind_ = Kind::kArray;
  v.items_ = std::move(items);
  return v;
}

JsonValue JsonValue::Object() {
  JsonValue v;
  v.kind_ = Kind::kObject;
  return v;
}

std::string JsonValue::Text(int indent) const {
  std::string out;
  Append(*this, indent, 0, &out);
  return out;
}

absl::StatusOr<JsonValue> ParseJson(absl::string_view text, absl::string_view place, int max_depth) {
  return JsonParser(text, place, max_depth).Parse();
}

}  // namespace twinforge
