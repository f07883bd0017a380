// What fits into the memory of a mesh: parameters first, then caches, page by page.
//
//   kv_tokens = (share of memory that the engine takes - parameters) / bytes of a cached token, in whole
//   pages
//
// Parameters are counted tensor by tensor in the types they are stored in, embeddings, heads and norms
// included, with padding and replication.
#ifndef TWINFORGE_COST_MEMORY_H_
#define TWINFORGE_COST_MEMORY_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "cost/calibration.h"
#include "cost/terms.h"

namespace twinforge {

struct Capacity {
  int64_t parameter_bytes = 0;  // of one device
  int64_t cache_bytes = 0;      // of one device, for the sequences that were asked for
  int64_t usable_bytes = 0;     // of one device, for parameters and caches
  int64_t kv_tokens = 0;        // of the whole mesh, at this context; 0: the model keeps no cache
  double sequences = 0;         // of this context that fit, in all groups
  bool feasible = true;
};

// `terms`: a decode step of `context` cached tokens in each sequence.
Capacity CapacityOf(const ChipFigures& chip, const StepTerms& terms, int64_t context, double memory_fraction,
                    int64_t page);

}  // namespace twinforge

#endif  // TWINFORGE_COST_MEMORY_H_
