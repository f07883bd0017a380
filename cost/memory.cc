#include "cost/memory.h"

#include <algorithm>
#include <cmath>

namespace twinforge {

Capacity CapacityOf(const ChipFigures& chip, const StepTerms& terms, int64_t context, double memory_fraction,
                    int64_t page) {
  Capacity capacity;
  capacity.parameter_bytes = terms.parameter_bytes.value();
  capacity.cache_bytes = terms.cache_bytes.value();
  capacity.usable_bytes =
      static_cast<int64_t>(std::floor(static_cast<double>(chip.memory_bytes) * memory_fraction));
  const int64_t free = capacity.usable_bytes - capacity.parameter_bytes;
  capacity.feasible = capacity.parameter_bytes + capacity.cache_bytes <= capacity.usable_bytes;
  if (capacity.cache_bytes == 0 || terms.sequences == 0) return capacity;
  const double pages = std::ceil(static_cast<double>(context) / static_cast<double>(page));
  const double rounding =
      pages * static_cast<double>(page) / static_cast<double>(std::max<int64_t>(context, 1));
  const double each =
      static_cast<double>(capacity.cache_bytes) / static_cast<double>(terms.sequences) * rounding;
  const double fit = std::max(0.0, static_cast<double>(free) / each);
  capacity.sequences = fit * static_cast<double>(terms.groups);
  capacity.kv_tokens = static_cast<int64_t>(std::floor(capacity.sequences * static_cast<double>(context)));
  return capacity;
}

}  // namespace twinforge
