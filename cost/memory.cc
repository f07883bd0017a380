#include "cost/memory.h"

#include <cmath>

#include "absl/numeric/int128.h"
#include "cost/exact.h"

namespace twinforge {

Capacity CapacityOf(const ChipFigures& chip, const StepTerms& terms, int64_t tokens, double memory_fraction,
                    int64_t page) {
  Capacity capacity;
  capacity.parameter_bytes = terms.parameter_bytes.value();
  capacity.cache_bytes = terms.cache_bytes.value();
  capacity.usable_bytes =
      static_cast<int64_t>(std::floor(static_cast<double>(chip.memory_bytes) * memory_fraction));
  const int64_t free = capacity.usable_bytes - capacity.parameter_bytes;
  capacity.feasible = free >= 0;
  if (capacity.cache_bytes == 0 || free < 0) return capacity;
  // In integers: a cache that just fits must not be lost to rounding.
  const absl::uint128 cached = absl::uint128(terms.sequences) * tokens;
  const auto pages =
      static_cast<int64_t>(absl::uint128(free) * cached / (absl::uint128(capacity.cache_bytes) * page));
  const int64_t each = pages / CeilDiv(tokens, page);
  capacity.kv_tokens = pages * page * terms.groups;
  capacity.sequences = each * terms.groups;
  capacity.feasible = each >= terms.sequences;
  return capacity;
}

}  // namespace twinforge
