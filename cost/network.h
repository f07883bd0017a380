// What an exchange between devices takes at published bandwidths: a torus and a switch are different models.
//
//   torus v6e 2x4      all-reduce of b bytes over 8:  2 b 7/8 / (axis bandwidths added), X - 1 hops an axis
//   switch h100_sxm    2 b 7/8 / one way out of a chip; beyond the domain the hosts' network as well
//
// Devices in several slices exchange within each first; what is left crosses the hosts' network.
//
// A torus axis moves data both ways round only where it wraps, which it does at whole multiples of the chip's
// own length (16 on v5e and v6e, 4 on v4 and v5p); shorter axes are lines. Sources: scaling-book (sharding),
// studies in docs/cost.md.
#ifndef TWINFORGE_COST_NETWORK_H_
#define TWINFORGE_COST_NETWORK_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "cost/chip.pb.h"
#include "cost/counts.h"

namespace twinforge {

struct Exchange {
  double seconds = 0;  // bytes at published bandwidth
  int64_t hops = 0;    // of the longest way, each of which has a latency
};

// TF1706 where the chip's file lacks a number that the exchange needs.
absl::StatusOr<Exchange> ExchangeOf(const Chip& chip, const Collective& collective);

// The axes of the smallest slice of a torus that holds so many chips: nearly equal, longest last.
//   SliceAxes(8, 2) = {2, 4}
std::vector<int64_t> SliceAxes(int64_t chips, int64_t axes);

}  // namespace twinforge

#endif  // TWINFORGE_COST_NETWORK_H_
