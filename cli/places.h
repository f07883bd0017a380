// How long sequences may be: a table of positions ends, rotary positions go on beyond what was trained.
#ifndef TWINFORGE_CLI_PLACES_H_
#define TWINFORGE_CLI_PLACES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/json.h"
#include "ir/graph.h"

namespace twinforge {

// TF1703 at `place` where the graph looks positions up in a table that has fewer than `places`.
absl::Status CheckPlaces(const Graph& graph, int64_t places, absl::string_view place);

// What is left to the reader to judge: sequences longer than the max_position_embeddings (or n_positions) of
// `config`.
std::vector<std::string> NotesOnPlaces(const JsonValue& config, int64_t places);

}  // namespace twinforge

#endif  // TWINFORGE_CLI_PLACES_H_
