// Walks over a certificate's text: each step takes what is expected and nothing else, or remembers where it
// stood.
//
//   scan.Take("op ") && scan.Count(op.nodes) && scan.Take(" ") && scan.Quoted(op.op) && scan.End()
#ifndef TWINFORGE_CHECK_CERTIFICATE_SCAN_H_
#define TWINFORGE_CHECK_CERTIFICATE_SCAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "check/certificate_file.h"

namespace twinforge {

class CertScan {
 public:
  CertScan(absl::string_view text, absl::string_view place) : text_(text), place_(place) {}

  int line() const { return line_; }
  size_t at() const { return at_; }
  bool done() const { return at_ == text_.size(); }
  bool ok() const { return failure_.ok(); }
  const absl::Status& failure() const { return failure_; }

  // Whether the rest of the text begins with `word`. Moves nothing.
  bool Sees(absl::string_view word) const { return text_.substr(at_, word.size()) == word; }

  bool Take(absl::string_view expected);
  bool Count(int64_t& count);  // 0 .. 2^63 - 1, no leading zero
  bool Natural(Wide& number);  // at most 38 digits
  bool Decimal(CertDecimal& decimal);
  bool Seconds(Wide& seconds);     // with all 21 decimals
  bool Word(std::string& word);    // a-z, 0-9, _
  bool Quoted(std::string& text);  // with its escapes as they are
  bool Hash(std::string& hash);    // 64 digits
  bool Shape(std::vector<int64_t>& shape);
  bool YesNo(bool& yes);
  bool End();  // of the line
  bool Fail(absl::string_view message);

 private:
  bool Digits(size_t most, Wide& number);

  absl::string_view text_;
  absl::string_view place_;
  size_t at_ = 0;
  size_t line_start_ = 0;
  int line_ = 1;
  absl::Status failure_;
};

}  // namespace twinforge

#endif  // TWINFORGE_CHECK_CERTIFICATE_SCAN_H_
