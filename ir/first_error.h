// Where the text of a node's attributes goes wrong, as protobuf's text parser tells it.
#ifndef TWINFORGE_IR_FIRST_ERROR_H_
#define TWINFORGE_IR_FIRST_ERROR_H_

#include <algorithm>
#include <string>

#include "absl/strings/string_view.h"
#include "google/protobuf/io/tokenizer.h"

namespace twinforge {

// Remembers the first complaint of protobuf's text parser.
class FirstAttrsError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (!message_.empty()) return;
    line_ = line;
    column_ = column;
    message_ = message;
  }
  const std::string& message() const { return message_; }
  // The offset in `text` that the complaint is about.
  size_t OffsetIn(absl::string_view text) const {
    size_t at = 0;
    for (int i = 0; i < line_; ++i) {
      const size_t end = text.find('\n', at);
      if (end == absl::string_view::npos) break;
      at = end + 1;
    }
    return std::min(at + std::max(column_, 0), text.size());
  }

 private:
  int line_ = 0, column_ = 0;
  std::string message_;
};

}  // namespace twinforge

#endif  // TWINFORGE_IR_FIRST_ERROR_H_
