#include "cli/score_notes.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/places.h"

namespace twinforge {
namespace {

// Of the longest sequence.
int64_t Places(const ScoreRequest& request) {
  const Workload& w = request.workload;
  if (request.serves) return request.serving.input_len + request.serving.output_len;
  const int64_t places = w.context + (w.phase == Phase::kDecode ? 1 : w.past);
  return w.mixed() ? std::max(places, w.past + w.chunk) : places;
}

}  // namespace

void AddNotes(const JsonValue& config, const ScoreRequest& request, Outcome& outcome) {
  for (const std::string& note : NotesOnPlaces(config, Places(request)))
    absl::StrAppend(&outcome.human, "  note: ", note, "\n");
  AddNotes(config, request, outcome.json);
}

void AddNotes(const JsonValue& config, const ScoreRequest& request, Json& json) {
  json["notes"] = NotesOnPlaces(config, Places(request));
}

}  // namespace twinforge
