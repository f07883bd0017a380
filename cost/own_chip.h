// A chip of one's own, in the format of cost/chips, beside those of the build.
//
//   UseChipFile("mine.textproto")   "mychip", which scores, advice and certificates then know by that name
#ifndef TWINFORGE_COST_OWN_CHIP_H_
#define TWINFORGE_COST_OWN_CHIP_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace twinforge {

// Makes the file's chip one of ShippedChips(), in the place of the one that has its id, and returns the id.
// TF1708 with line and column where the file is none; TF1719 where `chip lint` has a finding about it, since
// a bound must not rest on numbers that contradict one another.
// REQUIRES: no chip was looked up yet, and none taken up before.
absl::StatusOr<std::string> UseChipFile(const std::string& path);

// The texts of ShippedChips(), in their order.
absl::Span<const std::string> ChipTexts();

}  // namespace twinforge

#endif  // TWINFORGE_COST_OWN_CHIP_H_
