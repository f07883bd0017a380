// Strict JSON for configuration files, as a tree that can be changed and written back.
//
// Refused with line and column: anything RFC 8259 refuses, a byte-order mark, invalid
// UTF-8, bytes after the value, nesting deeper than `max_depth`, and duplicate keys in one
// object, compared after unescaping. Numbers keep their spelling; an integer beyond int64
// is still kInteger, as_integer() gives the nearest end of the range and as_number() its size.
//
// JsonValue is a plain tree for configs (kilobytes); safetensors headers with 200,000
// tensors are walked with JsonReader (json_reader.h), which is what is strict here too.
#ifndef TWINFORGE_BASE_JSON_H_
#define TWINFORGE_BASE_JSON_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace twinforge {

class JsonValue {
 public:
  enum class Kind { kNull, kBool, kInteger, kReal, kString, kArray, kObject };

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::kNull; }
  bool as_bool() const { return bool_; }                          // kBool
  int64_t as_integer() const { return integer_; }                 // kInteger
  double as_number() const { return number_; }                    // kInteger, kReal
  const std::string& as_string() const { return string_; }        // kString
  const std::vector<JsonValue>& items() const { return items_; }  // kArray
  // kObject: members in file order.
  const std::vector<std::pair<std::string, JsonValue>>& members() const { return members_; }
  const JsonValue* Find(absl::string_view key) const;         // one level; nullptr if absent
  const JsonValue* FindPath(absl::string_view dotted) const;  // "rope_parameters.rope_theta"

  // Changing a config before it is written back. Paths create objects on the way.
  void Set(absl::string_view dotted, JsonValue value);
  void Remove(absl::string_view dotted);

  static JsonValue Null();
  static JsonValue Bool(bool value);
  static JsonValue Integer(int64_t value);
  static JsonValue Real(double value);  // prints shortest-that-reads-back; inf and nan as Python's json does
  static JsonValue String(std::string value);
  static JsonValue Array(std::vector<JsonValue> items);
  static JsonValue Object();

  // As Python's json.dump writes it: member order kept, numbers spelled as read, strings in
  // ASCII, no final newline. Indent 0 is one line.
  std::string Text(int indent = 2) const;

 private:
  friend class JsonParser;
  Kind kind_ = Kind::kNull;
  bool bool_ = false;
  int64_t integer_ = 0;
  double number_ = 0;
  std::string string_;  // kString's value; for numbers, the spelling read
  std::vector<JsonValue> items_;
  std::vector<std::pair<std::string, JsonValue>> members_;
};

// `place` names the document in diagnostics (a file name). Python's NaN and Infinity
// are accepted as reals, since json.dump writes them into configs.
absl::StatusOr<JsonValue> ParseJson(absl::string_view text, absl::string_view place, int max_depth = 64);

}  // namespace twinforge

#endif  // TWINFORGE_BASE_JSON_H_
