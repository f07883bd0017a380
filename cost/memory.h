// What fits into the memory of a mesh: parameters first, then caches, page by page.
//
//   pages     = (share of memory that the engine takes - parameters) / bytes of a page of the cache
//   kv_tokens = pages x tokens of a page
//   sequences = pages / pages of one sequence
//
// all rounded down, for each group of devices; a recurrence's state is taken whole for each sequence, and a
// mixed step's prompt before the sequences. Of a pipeline the stage with the least room counts. Parameters
// are counted tensor by tensor in the types they are stored in, embeddings, heads and norms included, with
// padding and replication.
#ifndef TWINFORGE_COST_MEMORY_H_
#define TWINFORGE_COST_MEMORY_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "cost/calibration.h"
#include "cost/terms.h"

namespace twinforge {

struct Capacity {
  int64_t parameter_bytes = 0;  // of one device, of the fullest stage
  int64_t cache_bytes = 0;      // of one device, for the sequences that were asked for
  int64_t usable_bytes = 0;     // of one device, for parameters and caches
  int64_t kv_tokens = 0;        // of the whole mesh, windows as full as these sequences have them
  int64_t sequences = 0;        // of this length that fit, in all groups
  bool feasible = true;         // parameters fit, and so do the sequences that were asked for
};

// `tokens`: that the cache of `terms` holds of each sequence that is no mixed step's prompt. A model without
// a cache has room for none. REQUIRES: tokens > 0, page > 0.
Capacity CapacityOf(const ChipFigures& chip, const StepTerms& terms, int64_t tokens, double memory_fraction,
                    int64_t page);

}  // namespace twinforge

#endif  // TWINFORGE_COST_MEMORY_H_
