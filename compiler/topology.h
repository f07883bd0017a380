// Which devices a program is compiled for: a generation of chips and how many lie along each side.
//
//   ParseTopology("v6e:2x2")    4 chips of v6e
//   ParseTopology("v5p:1x1x1")  one chip
//
// The names are the compiler's own. v4's two cores are one device ("megacore"); tpu7x has two devices a chip.
#ifndef TWINFORGE_COMPILER_TOPOLOGY_H_
#define TWINFORGE_COMPILER_TOPOLOGY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace twinforge {

struct TpuTopology {
  std::string name;           // "v6e:2x2"
  std::string chip;           // "v6e": an id of cost/chips
  std::vector<int64_t> side;  // chips along each
  int64_t chips = 1;
  // What the compiler must be told beside the name.
  bool one_chip_host = false;  // chips_per_host_bounds [1, 1, 1]
  bool megacore = false;       // chip_config_name "megacore"
};

// TF2103 for an unknown generation, another number of sides than it has, or a side that is no small number.
absl::StatusOr<TpuTopology> ParseTopology(absl::string_view text);

// Devices that the compiler sees of it.
int64_t DevicesOf(const TpuTopology& topology);

// The smallest topology with at least `chips` chips that the compiler is known to take; "" where none is.
std::string TopologyFor(absl::string_view chip, int64_t chips);

}  // namespace twinforge

#endif  // TWINFORGE_COMPILER_TOPOLOGY_H_
