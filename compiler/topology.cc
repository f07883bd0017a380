#include "compiler/topology.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"

namespace twinforge {
namespace {

constexpr int64_t kLongestSide = 64;

struct GenerationSides {
  absl::string_view chip;
  size_t sides;
  std::vector<absl::string_view> known;  // compiled with before, smallest first
};

const std::vector<GenerationSides>& Generations() {
  static const auto* const all = new std::vector<GenerationSides>{
      {"v4", 3, {"v4:1x1x1", "v4:2x2x1"}},
      {"v5e", 2, {"v5e:1x1", "v5e:2x2", "v5e:2x4"}},
      {"v5p", 3, {"v5p:1x1x1", "v5p:2x2x1", "v5p:2x2x2"}},
      {"v6e", 2, {"v6e:1x1", "v6e:2x2", "v6e:2x4"}},
      {"tpu7x", 3, {"tpu7x:1x1x1", "tpu7x:2x2x1"}},
  };
  return *all;
}

absl::Status BadTopology(absl::string_view text, absl::string_view why) {
  std::vector<absl::string_view> examples;
  for (const GenerationSides& row : Generations())
    examples.insert(examples.end(), row.known.begin() + 1, row.known.end());
  return Error(2103, absl::StrCat("topology ", JsonQuoted(text, 100)), why,
               absl::StrCat("write one of ", absl::StrJoin(examples, ", "), ", or one chip, as v6e:1x1"));
}

}  // namespace

absl::StatusOr<TpuTopology> ParseTopology(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  const GenerationSides* generation = nullptr;
  for (const GenerationSides& row : Generations())
    if (row.chip == parts.first) generation = &row;
  if (generation == nullptr) return BadTopology(text, "names no generation that the compiler knows");
  TpuTopology topology = {.name = std::string(text), .chip = std::string(parts.first)};
  for (const absl::string_view side : absl::StrSplit(parts.second, 'x')) {
    int64_t chips = 0;
    if (side.size() > 2 || !absl::SimpleAtoi(side, &chips) || chips < 1 || chips > kLongestSide ||
        absl::StrCat(chips) != side) {
      return BadTopology(text, "has a side that is no number of chips from 1 to 64");
    }
    topology.side.push_back(chips);
    topology.chips *= chips;
  }
  if (topology.side.size() != generation->sides) {
    return BadTopology(text, absl::StrCat("has ", topology.side.size(), " sides, and ", generation->chip,
                                          " has ", generation->sides));
  }
  topology.one_chip_host = topology.chips == 1;
  topology.megacore = topology.chip == "v4";
  return topology;
}

int64_t DevicesOf(const TpuTopology& topology) { return topology.chips * (topology.chip == "tpu7x" ? 2 : 1); }

std::string TopologyFor(absl::string_view chip, int64_t chips) {
  for (const GenerationSides& row : Generations()) {
    if (row.chip != chip) continue;
    for (const absl::string_view name : row.known) {
      const absl::StatusOr<TpuTopology> topology = ParseTopology(name);
      if (topology.ok() && topology->chips >= chips) return topology->name;
    }
  }
  return "";
}

}  // namespace twinforge
