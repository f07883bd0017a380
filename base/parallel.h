// A loop over independent places, shared between the machine's cores.
//
//   ParallelFor(programs.size(), 64, [&](int64_t begin, int64_t end) {
//     for (int64_t i = begin; i < end; ++i) programs[i] = Make(i);
//   });
//
// The result may not depend on how the range is cut: whoever writes by index is deterministic for any number
// of threads. For work of microseconds a place; streaming has workers of its own, with a memory budget each.
#ifndef TWINFORGE_BASE_PARALLEL_H_
#define TWINFORGE_BASE_PARALLEL_H_

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace twinforge {

// Calls `body` for pieces of [0, count), none smaller than `grain` but the last, each place once; returns
// when all are done. Runs in the calling thread alone where the range is one piece, where it is called from
// inside another loop, or while another thread's loop has the helpers. `body` must not throw.
void ParallelFor(int64_t count, int64_t grain, absl::FunctionRef<void(int64_t begin, int64_t end)> body);

}  // namespace twinforge

#endif  // TWINFORGE_BASE_PARALLEL_H_
