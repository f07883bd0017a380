// The first mistake that protobuf's text parser finds, with its place; those that follow from it are dropped.
//
//   FirstMistake mistake;
//   parser.RecordErrorsTo(&mistake);
//   if (!parser.ParseFromString(text, &message)) ... mistake.place()      "12:3"
#ifndef TWINFORGE_BASE_FIRST_MISTAKE_H_
#define TWINFORGE_BASE_FIRST_MISTAKE_H_

#include <google/protobuf/io/tokenizer.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace twinforge {

class FirstMistake : public google::protobuf::io::ErrorCollector {
 public:
  // The parser counts both from 0 and takes a tab to the next multiple of 8; of no place at all it says -1.
  void AddError(int line, google::protobuf::io::ColumnNumber column, const std::string& message) override {
    if (!message_.empty()) return;
    line_ = std::max(line, 0);
    column_ = std::max(column, 0);
    message_ = message;
  }

  const std::string& message() const { return message_; }  // "" where there was none
  int line() const { return line_ + 1; }                   // from 1
  int column() const { return column_ + 1; }               // from 1, as the parser counts
  std::string place() const { return absl::StrCat(line(), ":", column()); }

  // Where in `text`, which it was parsed from, the parser stood.
  size_t OffsetIn(absl::string_view text) const {
    size_t at = 0;
    for (int line = line_; line > 0 && at < text.size(); ++at) line -= text[at] == '\n' ? 1 : 0;
    for (int now = 0; now < column_ && at < text.size() && text[at] != '\n'; ++at)
      now = text[at] == '\t' ? (now / 8 + 1) * 8 : now + 1;
    return at;
  }

 private:
  int line_ = 0;
  int column_ = 0;
  std::string message_;
};

}  // namespace twinforge

#endif  // TWINFORGE_BASE_FIRST_MISTAKE_H_
