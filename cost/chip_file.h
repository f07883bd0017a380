// Chip files: read with line and column of every mistake, found by whatever name people type, and checked.
//
//   ParseChip(text, "mine.textproto")    TF1708 mine.textproto:12:3: Chip has no key named "hbm_sise"
//   FindIn(ShippedChips(), "H100-SXM")   the same chip as "h100_sxm" and "h100"; TF1701 names the nearest ids
//   NumbersOf(chip)                      every number of a file with its path, whatever message holds it
//
// Case does not count in names, and "-", " " and "." count as "_".
#ifndef TWINFORGE_COST_CHIP_FILE_H_
#define TWINFORGE_COST_CHIP_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cost/chip.pb.h"

namespace twinforge {

// TF1708 with `place` and line:column where the text is no chip file, or names no id.
absl::StatusOr<Chip> ParseChip(absl::string_view text, absl::string_view place);
absl::StatusOr<Chip> ReadChip(const std::string& path);

// The chips of this build, ascending by id, then one taken up (own_chip.h). Live as long as the process.
absl::Span<const Chip> ShippedChips();

// By id, alias or name in chips.csv; TF1701 with at most three of the nearest ids.
absl::StatusOr<const Chip*> FindIn(absl::Span<const Chip> chips, absl::string_view word);

// "H100-SXM" -> "h100_sxm".
std::string FoldedChipName(absl::string_view word);

// A number's value in base units (bytes, per second, watts); 0 where it is absent or its unit unknown.
double InBaseUnits(const Chip::Number& number);

struct ChipNumber {
  std::string path;   // "hbm_size"; "peak bf16", "peak bf16 2:4"
  std::string field;  // "hbm_size", "rate"
  const Chip::Number* number;
};
std::vector<ChipNumber> NumbersOf(const Chip& chip);

// What is wrong with a file that parses: numbers out of range, in a wrong unit or without source; numbers
// that contradict one another (a peak against units x clock, a rate against another type's, links against
// their sum); types that can't be. A finding that the file itself accepts with a reason is left out.
std::vector<std::string> LintChip(const Chip& chip);
// Ids, aliases and names that two chips share.
std::vector<std::string> LintNames(absl::Span<const Chip> chips);
// Fields of type Number for which lint knows neither unit nor range; empty, or a field was added and
// forgotten.
std::vector<std::string> FieldsWithoutRange();

}  // namespace twinforge

#endif  // TWINFORGE_COST_CHIP_FILE_H_
