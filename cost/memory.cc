#include "cost/memory.h"

#include <algorithm>
#include <cmath>

#include "absl/numeric/int128.h"
#include "cost/exact.h"

namespace twinforge {

namespace {

// What the memory of one stage holds.
struct StageRoom {
  int64_t pages = 0;
  int64_t sequences = 0;
};

// In integers: a cache that just fits must not be lost to rounding. A page takes cache x page / cached bytes,
// so all bytes are multiplied by `cached`, the places that the cache was counted for.
StageRoom RoomOf(const StageTerms& stage, const StepTerms& terms, int64_t free, int64_t tokens,
                 int64_t page) {
  const absl::int128 cached = absl::int128(terms.sequences) * tokens + terms.prompt;
  const absl::int128 page_bytes = absl::int128(stage.cache_bytes.value()) * page;
  const int64_t states = terms.sequences + (terms.prompt > 0 ? 1 : 0);
  const absl::int128 state = absl::int128(CeilDiv(stage.state_bytes.value(), states)) * cached;
  const absl::int128 all = absl::int128(free) * cached;
  const absl::int128 prompt = terms.prompt > 0 ? CeilDiv(terms.prompt, page) * page_bytes + state : 0;
  const absl::int128 each = CeilDiv(tokens, page) * page_bytes + state;
  StageRoom room;
  if (all >= prompt && each > 0) room.sequences = static_cast<int64_t>((all - prompt) / each);
  const absl::int128 rest = all - state * states;
  if (rest > 0 && page_bytes > 0) room.pages = static_cast<int64_t>(rest / page_bytes);
  return room;
}

}  // namespace

Capacity CapacityOf(const ChipFigures& chip, const StepTerms& terms, int64_t tokens, double memory_fraction,
                    int64_t page) {
  Capacity capacity;
  capacity.parameter_bytes = terms.parameter_bytes.value();
  capacity.cache_bytes = terms.cache_bytes.value();
  capacity.usable_bytes =
      static_cast<int64_t>(std::floor(static_cast<double>(chip.memory_bytes) * memory_fraction));
  // The stage with the least room for its own part of the cache sets that of all.
  int64_t pages = INT64_MAX, sequences = INT64_MAX;
  for (const StageTerms& stage : terms.stages) {
    const int64_t free = capacity.usable_bytes - stage.parameter_bytes.value();
    capacity.feasible = capacity.feasible && free >= 0;
    if ((stage.cache_bytes + stage.state_bytes).value() == 0 || free < 0) continue;
    const StageRoom room = RoomOf(stage, terms, free, tokens, page);
    sequences = std::min(sequences, room.sequences);
    if (stage.cache_bytes.value() > 0) pages = std::min(pages, room.pages);
  }
  if (sequences == INT64_MAX || !capacity.feasible) return capacity;
  capacity.kv_tokens = pages == INT64_MAX ? 0 : pages * page * terms.groups;
  capacity.sequences = sequences * terms.groups;
  capacity.feasible = sequences >= terms.sequences;
  return capacity;
}

}  // namespace twinforge
