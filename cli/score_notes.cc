#include "cli/score_notes.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace twinforge {
namespace {

int64_t Places(const ScoreRequest& request) {
  const Workload& w = request.workload;
  if (request.serves) return request.serving.input_len + request.serving.output_len;
  return w.context + (w.phase == Phase::kDecode ? 1 : w.past);
}

std::vector<std::string> NotesOn(const JsonValue& config, const ScoreRequest& request) {
  std::vector<std::string> notes;
  for (const char* key : {"max_position_embeddings", "n_positions"}) {
    const JsonValue* most = config.Find(key);
    if (most == nullptr || most->kind() != JsonValue::Kind::kInteger || Places(request) <= most->as_integer())
      continue;
    notes.push_back(absl::StrCat("sequences of ", Places(request), " places are longer than the model's ",
                                 key, ", ", most->as_integer()));
  }
  return notes;
}

}  // namespace

void AddNotes(const JsonValue& config, const ScoreRequest& request, Outcome& outcome) {
  for (const std::string& note : NotesOn(config, request))
    absl::StrAppend(&outcome.human, "  note: ", note, "\n");
  AddNotes(config, request, outcome.json);
}

void AddNotes(const JsonValue& config, const ScoreRequest& request, Json& json) {
  json["notes"] = NotesOn(config, request);
}

}  // namespace twinforge
