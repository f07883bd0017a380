// The first block in which one graph is not the other, and how it differs, in their printed form.
#ifndef TWINFORGE_PROOF_DEPARTURE_H_
#define TWINFORGE_PROOF_DEPARTURE_H_

#include <optional>
#include <string>

#include "ir/graph.h"

namespace twinforge {

struct GraphDeparture {
  Node node;         // of the first graph; of the second, where the first has no such block
  std::string role;  // a parameter's, or the block's path
  std::string what;  // both sides, quoted around the place where they part; "" where print does not tell
};

// By paths, in the order of `said`; blocks that `said` lacks come last. Nothing where no block differs.
std::optional<GraphDeparture> FirstDeparture(const Graph& said, const Graph& is);

// "" for equal lines, else both around the first byte that differs, quoted: a long line shows what differs.
std::string PartedLines(absl::string_view said, absl::string_view is);

}  // namespace twinforge

#endif  // TWINFORGE_PROOF_DEPARTURE_H_
