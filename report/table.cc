#include "report/table.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace twinforge {
namespace {

bool LooksNumeric(const std::string& cell) {
  const size_t at = !cell.empty() && (cell[0] == '-' || cell[0] == '+') ? 1 : 0;
  return at < cell.size() && cell[at] >= '0' && cell[at] <= '9';
}

// Columns seen by a reader: UTF-8 continuation bytes take no place.
size_t Width(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

}  // namespace

Table::Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }

void Table::Row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

std::string Table::Text() const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], Width(row[c]));
  }
  // A column is set flush right when its first body cell is a number; the first column names the row.
  std::vector<bool> right(widths.size(), false);
  for (size_t c = 1; rows_.size() > 1 && c < rows_[1].size(); ++c) right[c] = LooksNumeric(rows_[1][c]);
  std::string out;
  for (const auto& row : rows_) {
    std::string line(2, ' ');
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string blank(widths[c] - Width(row[c]), ' ');
      absl::StrAppend(&line, c == 0 ? "" : "  ", right[c] ? blank : "", row[c], right[c] ? "" : blank);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&out, line, "\n");
  }
  return out;
}

std::string Grouped(int64_t value) {
  std::string digits = std::to_string(std::llabs(value));
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), 1, ',');
  return absl::StrCat(value < 0 ? "-" : "", digits);
}

std::string HumanBytes(int64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 5) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrFormat("%d B", bytes) : absl::StrFormat("%.2f %s", value, units[unit]);
}

std::string HumanSeconds(double seconds) {
  if (seconds >= 1) return absl::StrFormat("%.3g s", seconds);
  if (seconds >= 1e-3) return absl::StrFormat("%.3g ms", seconds * 1e3);
  if (seconds >= 1e-6) return absl::StrFormat("%.3g us", seconds * 1e6);
  return absl::StrFormat("%.3g ns", seconds * 1e9);
}

std::string Percent(double fraction) { return absl::StrFormat("%.1f %%", fraction * 100); }

}  // namespace twinforge
