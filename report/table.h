// Plain tables for a terminal: columns aligned, nothing but text, no colour.
#ifndef TWINFORGE_REPORT_TABLE_H_
#define TWINFORGE_REPORT_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace twinforge {

// Rows of cells; a cell that starts like a number is set flush right when `numbers_right`.
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  void Row(std::vector<std::string> cells);
  // Two spaces of indent, a line per row, trailing blanks removed.
  std::string Text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string Grouped(int64_t value);        // 8,030,261,248
std::string HumanBytes(int64_t bytes);     // 14.96 GiB
std::string HumanSeconds(double seconds);  // 7.95 ms
std::string Percent(double fraction);      // 37.5 %

}  // namespace twinforge

#endif  // TWINFORGE_REPORT_TABLE_H_
