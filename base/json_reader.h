// A strict reader of JSON text, one value at a time, without building a tree.
//
//   JsonReader reader(text, "model.safetensors", JsonDialect::kHeader);
//   TWIN_RETURN_IF_ERROR(reader.Start());
//   TWIN_RETURN_IF_ERROR(reader.EnterObject());
//   for (;;) {
//     absl::string_view key;
//     TWIN_ASSIGN_OR_RETURN(bool more, reader.NextMember(&key));
//     if (!more) break;
//     ... exactly one value: String(), Number(), Skip(), EnterArray() ...
//   }
//   TWIN_RETURN_IF_ERROR(reader.Finish());
//
// Refused, each with its place: what RFC 8259 refuses, a byte-order mark, invalid UTF-8,
// half of a surrogate pair, nesting beyond the limit, bytes after the value. Duplicate
// keys are for the caller to notice (KeySet below), who knows which keys can be many.
// Time is linear in the text; memory is at most one copy of it, and only if it has escapes.
#ifndef TWINFORGE_BASE_JSON_READER_H_
#define TWINFORGE_BASE_JSON_READER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace twinforge {

enum class JsonDialect {
  kHeader,    // RFC 8259; only spaces may follow the value; places are "header byte 17"
  kDocument,  // Python's NaN and Infinity too; places are "config.json:3:14"
};

enum class JsonKind { kNull, kBool, kNumber, kString, kArray, kObject };

absl::string_view Name(JsonKind kind);  // "a string", "an object", ...

// `text` as a JSON string in double quotes, ASCII only, at most `limit` bytes of it: for
// diagnostics, where a hostile name must not reach the terminal.
std::string JsonQuoted(absl::string_view text, int64_t limit = INT64_MAX);

// The keys of one object, to notice the second one of a name. Small objects never hash.
class KeySet {
 public:
  bool Insert(absl::string_view key);  // false if it was there

 private:
  std::vector<absl::string_view> few_;
  absl::flat_hash_set<absl::string_view> many_;
};

class JsonReader {
 public:
  // `text` outlives the reader and every string_view that it gives.
  JsonReader(absl::string_view text, absl::string_view place, JsonDialect dialect, int max_depth = 64);

  absl::Status Start();   // before anything else: encoding
  absl::Status Finish();  // after the value: nothing else follows

  absl::StatusOr<JsonKind> Peek();  // of the value that comes next
  bool NextIs(JsonKind kind);       // the same as a question, cheaper

  // Each consumes one value, and fails on a value of another kind. The string_views live as long
  // as the text and the reader.
  absl::Status Null();
  absl::Status Bool(bool* value);
  absl::Status Number(absl::string_view* spelling);  // "-0.5e3"; in documents also "NaN", "-Infinity"
  absl::Status String(absl::string_view* value);     // unescaped
  absl::Status Skip();                               // any, its keys checked for duplicates

  absl::Status EnterObject();
  absl::StatusOr<bool> NextMember(absl::string_view* key);  // false: the object was left
  absl::Status EnterArray();
  absl::StatusOr<bool> NextItem();  // false: the array was left

  // A diagnostic (TF1206) at the present position, and one at the latest key.
  absl::Status Fail(absl::string_view message) const;
  absl::Status FailDuplicate(absl::string_view key) const;

 private:
  absl::Status FailAt(size_t position, absl::string_view message) const;
  void SkipSpace();
  absl::Status Expect(JsonKind kind);
  absl::Status Enter(JsonKind kind);
  absl::Status Word(absl::string_view word);
  absl::Status Digits();
  absl::Status Separator(char close, bool* more);
  absl::Status Escape();
  absl::StatusOr<uint32_t> FourHexDigits();
  absl::Status SkipContainer(JsonKind kind);

  absl::string_view text_;
  std::string place_;
  JsonDialect dialect_;
  int max_depth_;
  int depth_ = 0;
  size_t position_ = 0;
  size_t key_position_ = 0;
  bool first_ = true;      // no member or item of the innermost container was read yet
  std::string unescaped_;  // reserved once, so that views into it stay valid
};

}  // namespace twinforge

#endif  // TWINFORGE_BASE_JSON_READER_H_
