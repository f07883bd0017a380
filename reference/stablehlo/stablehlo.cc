#include "reference/stablehlo/stablehlo.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "reference/stablehlo/block.h"
#include "reference/stablehlo/computed_in.h"
#include "reference/stablehlo/module.h"
#include "reference/stablehlo/weight_argument.h"

namespace twinforge {
namespace {

absl::StatusOr<StableHloSizes> SizesOf(const Graph& graph, const StableHloOptions& options) {
  StableHloSizes sizes;
  sizes.decode = options.phase == StableHloPhase::kDecode;
  sizes.batch = options.batch;
  sizes.sequence = options.sequence;
  sizes.context = options.context == 0 ? options.sequence : options.context;
  sizes.logits = options.logits;
  constexpr int64_t kMost = int64_t{1} << 31;
  for (int64_t size : {sizes.batch, sizes.sequence, sizes.context}) {
    if (size < 1 || size >= kMost)
      return Error(1621, "", absl::StrCat("a size of ", size, " is out of range"));
  }
  if (sizes.sequence > sizes.context) {
    return Error(1621, "",
                 absl::StrCat(sizes.sequence, " tokens do not fit a cache of ", sizes.context, " places"));
  }
  if (!sizes.decode) return sizes;
  if (IsWrittenOut(graph)) {
    return Error(1620, graph.name(), "is written out as primitives, which remember no token",
                 "a prefill can be written");
  }
  const bool remembers = std::any_of(graph.nodes().begin(), graph.nodes().end(),
                                     [&](const Node& node) { return Remembers(graph, node); });
  if (remembers) return sizes;
  return Error(1620, graph.name(), "has no block that remembers tokens, so there is no decode step",
               "a prefill can be written");
}

absl::StatusOr<Graph> ComputedAsAsked(const Graph& graph, const StableHloOptions& options) {
  if (!options.dtype) return graph;
  return ComputedIn(graph, *options.dtype);
}

std::string NameOf(const Graph& graph, const StableHloSizes& sizes) {
  return absl::StrCat(graph.name(), sizes.decode ? ".decode" : ".prefill", ".b", sizes.batch, ".s",
                      sizes.sequence, ".c", sizes.context);
}

// "layers.3" of "layers.3.attn.q"; "" for what is in no layer.
std::string LayerOf(const std::string& path) {
  const size_t first = path.find('.');
  if (first == std::string::npos) return "";
  const size_t second = std::min(path.find('.', first + 1), path.size());
  const std::string number = path.substr(first + 1, second - first - 1);
  const bool counts = !number.empty() && number.find_first_not_of("0123456789") == std::string::npos;
  return counts ? path.substr(0, second) : "";
}

struct Stretch {
  std::string name;
  NodeRange range;
};

// Layers, and what stands before and after them, in order.
std::vector<Stretch> StretchesOf(const Graph& graph) {
  std::vector<Stretch> stretches;
  bool seen = false;
  for (const Node& node : graph.nodes()) {
    if (node.op == OpKind::kInput) continue;
    const std::string layer = LayerOf(node.path);
    seen = seen || !layer.empty();
    const std::string name = !layer.empty() ? layer : seen ? "head" : "embedding";
    if (stretches.empty() || stretches.back().name != name) {
      stretches.push_back({name, {node.id, node.id, false}});
    }
    stretches.back().range.end = node.id + 1;
  }
  return stretches;
}

// A module's text with the layer's name taken out: equal for layers that are alike.
std::string Anonymous(const StableHloModule& module, const std::string& layer) {
  std::string text;
  size_t at = 0;
  const std::string mark = layer + ".";
  while (true) {
    const size_t found = module.text.find(mark, at);
    if (found == std::string::npos) break;
    absl::StrAppend(&text, module.text.substr(at, found - at), "layer.");
    at = found + mark.size();
  }
  return text + module.text.substr(at);
}

}  // namespace

absl::string_view StableHloKindName(StableHloArgument::Kind kind) {
  switch (kind) {
    case StableHloArgument::Kind::kInput:
      return "input";
    case StableHloArgument::Kind::kCache:
      return "cache";
    case StableHloArgument::Kind::kWeight:
      return "weight";
  }
  return "";
}

absl::StatusOr<StableHloModule> WriteStableHlo(const Graph& graph, const StableHloOptions& options) {
  TWIN_ASSIGN_OR_RETURN(const Graph computed, ComputedAsAsked(graph, options));
  TWIN_ASSIGN_OR_RETURN(const StableHloSizes sizes, SizesOf(graph, options));
  const WeightArguments weights(graph, options.kept);
  ModuleWriter writer(computed, weights, sizes);
  return writer.Write({0, static_cast<NodeId>(graph.nodes().size()), true}, NameOf(graph, sizes));
}

absl::StatusOr<std::vector<StableHloPart>> WriteStableHloParts(const Graph& graph,
                                                               const StableHloOptions& options) {
  TWIN_ASSIGN_OR_RETURN(const Graph computed, ComputedAsAsked(graph, options));
  TWIN_ASSIGN_OR_RETURN(const StableHloSizes sizes, SizesOf(graph, options));
  const WeightArguments weights(graph, options.kept);
  std::vector<StableHloPart> parts;
  std::map<std::string, size_t> known;  // anonymous text -> part
  for (const Stretch& stretch : StretchesOf(graph)) {
    ModuleWriter writer(computed, weights, sizes);
    const std::string kind = LayerOf(stretch.name + ".").empty() ? stretch.name : "layer";
    TWIN_ASSIGN_OR_RETURN(StableHloModule module,
                          writer.Write(stretch.range, absl::StrCat(NameOf(graph, sizes), ".", kind)));
    module.name = absl::StrCat(NameOf(graph, sizes), ".", stretch.name);
    const auto [at, fresh] = known.emplace(Anonymous(module, stretch.name), parts.size());
    if (fresh) parts.push_back({stretch.name, {}, std::move(module)});
    parts[at->second].members.push_back(stretch.name);
  }
  return parts;
}

}  // namespace twinforge
