#include "cli/places.h"

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"

namespace twinforge {

absl::Status CheckPlaces(const Graph& graph, int64_t places, absl::string_view place) {
  for (const Node& node : graph.nodes()) {
    if (node.op != OpKind::kEmbedding || !node.Has("position_table")) continue;
    const int64_t known =
        graph.param(node, "position_table").type.axes[0].logical - node.attrs->embedding().position_offset();
    if (places <= known) continue;
    return Error(1703, place,
                 absl::StrCat(places, " places, but the position table of ", node.path, " has ", known),
                 absl::StrCat("sequences of at most ", known, " tokens have places"));
  }
  return absl::OkStatus();
}

std::vector<std::string> NotesOnPlaces(const JsonValue& config, int64_t places) {
  std::vector<std::string> notes;
  for (const char* key : {"max_position_embeddings", "n_positions"}) {
    const JsonValue* most = config.Find(key);
    if (most == nullptr || most->kind() != JsonValue::Kind::kInteger || places <= most->as_integer())
      continue;
    notes.push_back(absl::StrCat("sequences of ", places, " places are longer than the model's ", key, ", ",
                                 most->as_integer()));
  }
  return notes;
}

}  // namespace twinforge
